"""``grange simulate``: what a policy would make of a trace, in virtual time."""
