"""Adapters: one module for each kind of job that the controller acts on."""

from typing import Any

from grange.controllers.gangjob.adapter import JobAdapter
from grange.controllers.gangjob.adapters.gangjob import GANGJOB_ADAPTER

ADAPTERS: tuple[JobAdapter[Any], ...] = (GANGJOB_ADAPTER,)
"""One a kind."""
