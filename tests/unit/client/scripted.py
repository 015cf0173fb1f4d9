"""A transport that answers from a script and notes what it was asked."""

from collections.abc import AsyncGenerator, Sequence

from grange.api.http import Request, Response


class Scripted:
    """Answers requests in order; an exception in the script is raised."""

    def __init__(self, *answers: Response | Exception) -> None:
        self.requests: list[Request] = []
        self.open_streams = 0
        self._answers = list(answers)

    def script(self, *answers: Response | Exception) -> None:
        """What to answer next."""
        self._answers.extend(answers)

    async def send(self, request: Request) -> Response:
        self.requests.append(request)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None:
        pass

    def stream(self, chunks: Sequence[bytes | Exception]) -> Response:
        """An answer that arrives in chunks; it counts as open until it is closed."""

        async def run() -> AsyncGenerator[bytes, None]:
            self.open_streams += 1
            try:
                for chunk in chunks:
                    if isinstance(chunk, Exception):
                        raise chunk
                    yield chunk
            finally:
                self.open_streams -= 1

        return Response(200, chunks=run())
