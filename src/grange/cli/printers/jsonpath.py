"""JSONPath in options: what is malformed is an error of usage."""

import click

from grange.api import jsonpath


def evaluate(template: str, document: object) -> str:
    """The template filled in from the document; missing fields give nothing.

    Raises:
        click.UsageError: the template is malformed.
    """
    try:
        return jsonpath.evaluate(template, document)
    except jsonpath.JsonPathError as error:
        raise click.UsageError(str(error)) from error
