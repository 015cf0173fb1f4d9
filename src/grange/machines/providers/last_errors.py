"""Which errors are new, so that what fails again and again in the same way is reported once."""

from grange.base.bounded import BoundedDict

_REMEMBERED = 1000  # of instances that are gone, too; beyond it one may be reported twice


class LastErrors:
    """Remembers the last error of each subject."""

    def __init__(self) -> None:
        self._errors: BoundedDict[str, str] = BoundedDict(_REMEMBERED)

    def get(self, subject: str) -> str:
        """The last error; empty after a success."""
        return self._errors.get(subject, "")

    def changed(self, subject: str, error: str) -> bool:
        """Note an error, or by an empty one a success; whether it differs from the last."""
        if self.get(subject) == error:
            return False
        if error:
            self._errors[subject] = error
        else:
            del self._errors[subject]
        return True
