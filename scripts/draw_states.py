"""Draws the state machines of the agent into docs/agent.md."""

from pathlib import Path

from grange.agent import states

PAGE = Path(__file__).parents[1] / "docs" / "agent.md"


def drawn(page: str) -> str:
    """The page with every diagram as the tables have it now."""
    for name, diagram in states.diagrams().items():
        head = f"<!-- {name} -->\n```mermaid\n"
        before, _, rest = page.partition(head)
        page = before + head + diagram + rest[rest.index("```\n") :]
    return page


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text()))
