"""``python -m grange``."""

from grange.app.main import main

main()
