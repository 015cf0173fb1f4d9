"""The defaults of a LoadTest operator: images by language, pools by role, time to kill."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from grange.api.meta import Document
from grange.cli.loadtests.loadtest_fields import LoadTestObject


@dataclass(frozen=True, slots=True)
class LanguageImages:
    """Images for components of one language; empty where there is none."""

    build: str = ""
    run: str = ""


@dataclass(frozen=True, slots=True)
class LoadTestDefaults:
    """What fields have that a LoadTest leaves out.

    Attributes:
        clone_image: clones repositories.
        driver_image: runs the driver.
        languages: images by language.
        pools: pool by role; empty for the LeasePolicy's.
        kill_after: seconds between the two signals to a program that takes too long.
    """

    clone_image: str = ""
    driver_image: str = ""
    languages: Mapping[str, LanguageImages] = field(default_factory=dict)
    pools: Mapping[str, str] = field(default_factory=dict)
    kill_after: str = "30"

    def images(self, language: str) -> LanguageImages:
        """The images of a language."""
        return self.languages.get(language, LanguageImages())


def read_defaults(document: Document) -> LoadTestDefaults:
    """The defaults of an operator's file.

    Raises:
        InvalidLoadTest: a field has the wrong type.
    """
    found = LoadTestObject(document, "")
    pools = found.part("defaultPoolLabels")
    languages = {}
    for item in found.parts("languages"):
        name = item.text("language")
        languages[name] = LanguageImages(item.text("buildImage"), item.text("runImage"))
    kill_after = found.number("killAfter")
    # Labels of nodes name the operator's default pools; their keys are the usual names of pools.
    usual = LoadTestDefaults()
    return LoadTestDefaults(
        clone_image=found.text("cloneImage"),
        driver_image=found.text("driverImage"),
        languages=languages,
        pools={role: pool for role in ("driver", "server", "client") if (pool := pools.text(role))},
        kill_after=usual.kill_after if kill_after is None else str(kill_after),
    )
