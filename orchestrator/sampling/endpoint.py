"""An OpenAI-compatible server, called by the openai library, and what its errors mean.

The key is read from an environment variable of the calling process and kept in its memory: it is in
no argument, file, log or message, also where a server's own message repeats it.
"""

import os
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from orchestrator.sampling.base import SamplingError
from orchestrator.sampling.vllm import RANKS
from orchestrator.storage.errors import one_line

CONNECT_SECONDS = 10.0
CONTROL_RETRIES = 2  # of requests that draw nothing: their errors should arrive soon
NO_ADAPTER = "decile-none"  # a name that no adapter has
MAX_MESSAGE = 300
TOO_LONG = ("context_length_exceeded", "context length")  # a code of OpenAI's, and vLLM's words


class ServedModel(BaseModel):
    """One model of GET /models; `root` and `max_model_len` are extensions of vLLM's.

    `root` is the folder or hub id that the server loaded.
    """

    id: str
    root: str | None = None
    max_model_len: int | None = None


class _ServedModels(BaseModel):
    data: list[ServedModel]


class PromptTooLong(SamplingError):
    """The prompt and the completion do not fit the model's window."""


@dataclass(frozen=True)
class Endpoint:
    """A server and how long to wait for it; raises SamplingError where it fails."""

    base_url: str
    api_key_env: str = ""
    timeout: float = 600.0
    max_retries: int = 60
    _key: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Read the key. Raises SamplingError where the environment has none."""
        object.__setattr__(self, "_key", _read_key(self.api_key_env))

    def client(self, retries: int | None = None) -> AbstractAsyncContextManager[Any]:
        """A client, to be used in one event loop; retries 408, 409, 429, 5xx and lost connections.

        Raises SamplingError without the openai library.
        """
        try:
            import openai
        except ImportError as error:
            raise SamplingError(
                "engine server is not installed: pip install 'decile[server]'"
            ) from error
        return openai.AsyncOpenAI(
            base_url=self.base_url,
            api_key=self._key or "none",  # never the library's default, OPENAI_API_KEY
            timeout=openai.Timeout(self.timeout, connect=CONNECT_SECONDS),
            max_retries=self.max_retries if retries is None else retries,
        )

    async def post(self, client: Any, path: str, body: dict[str, Any]) -> Any:
        """The reply to one request, as JSON where it is JSON, else as text."""
        import openai

        try:
            return await client.post(path, cast_to=object, body=body)
        except openai.APIError as error:
            raise self._fault(error) from None
        except (ValueError, RecursionError):  # RecursionError: nested too deep
            return "a text that is not JSON"

    async def models(self) -> list[ServedModel]:
        """The models that the server serves."""
        import openai

        async with self.client(CONTROL_RETRIES) as client:
            try:
                reply = await client.get("/models", cast_to=object)
                return _ServedModels.model_validate(reply).data
            except openai.APIError as error:
                raise self._fault(error) from None
            except (ValueError, RecursionError):  # of JSON, of Unicode, or of pydantic
                raise self.error("GET /models does not list models: check base_url") from None

    async def load_adapter(self, name: str, folder: Path) -> None:
        """Load the LoRA adapter in this folder, which the server reads itself, under a name.

        The name is a hash of the content: an adapter of that name may stay loaded.
        """
        try:
            await self._control("load", {"lora_name": name, "lora_path": str(folder)})
        except SamplingError as error:
            if "already been loaded" not in str(error):
                raise SamplingError(
                    f"{error}; the server must see the adapter under this path: {folder}"
                ) from None

    async def unload_adapter(self, name: str) -> None:
        """Unload the adapter of that name."""
        await self._control("unload", {"lora_name": name})

    async def check_adapters(self, rank: int) -> None:
        """Raise SamplingError where the server cannot load adapters.

        One that does not exist is loaded: only a server that could, misses the file.
        """
        missing = f"/{NO_ADAPTER}"
        try:
            await self._control("load", {"lora_name": NO_ADAPTER, "lora_path": missing})
        except SamplingError as error:
            if missing not in str(error):
                largest = next((known for known in RANKS if known >= rank), rank)
                raise SamplingError(
                    f"{error}; to evaluate adapters, start vLLM with --enable-lora "
                    f"--max-lora-rank {largest} and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"
                ) from None

    async def _control(self, verb: str, body: dict[str, Any]) -> None:
        import openai

        async with self.client(CONTROL_RETRIES) as client:
            try:
                await client.post(f"/{verb}_lora_adapter", cast_to=str, body=body)
            except openai.APIError as error:
                raise self._fault(error) from None

    def error(self, message: str) -> SamplingError:
        """An error of this server, with its address and without the key."""
        return SamplingError(self._sentence(message))

    def without_key(self, text: str) -> str:
        """The text of a server without the key. To be called before a text is cut."""
        return text.replace(self._key, "***") if self._key else text

    def _sentence(self, message: str) -> str:
        return f"server {self.base_url}: {one_line(self.without_key(message))}"

    def _fault(self, error: Any) -> SamplingError:
        """What an error of the openai library means, and what to do."""
        import openai

        if isinstance(error, openai.APITimeoutError):
            return self.error(f"it does not answer within {self.timeout:g} s")
        if not isinstance(error, openai.APIStatusError):
            cause = error.__cause__ or error
            return self.error(
                f"it cannot be reached ({type(cause).__name__}: {cause}): "
                "start it, or correct base_url"
            )
        status, text = error.status_code, self._message(error)
        if status == 400 and any(words in f"{error.code} {text}" for words in TOO_LONG):
            return PromptTooLong(self._sentence(text))
        if status in (401, 403):
            name = self.api_key_env
            remedy = f"set {name} to a valid key" if name else "write engine_args: {api_key_env: …}"
            return self.error(f"it refuses the key ({status}: {text}): {remedy}")
        if status == 404 and (text == "Not Found" or not isinstance(error.body, dict)):
            return self.error(f"it has no {error.request.url.path} (404): check base_url")
        if status in (408, 409, 429) or status >= 500:
            wait = error.response.headers.get("retry-after", "")
            asks = f" and asks to wait {wait} s" if wait.isdecimal() else ""
            return self.error(f"it still answers {status} ({text}){asks}")
        return self.error(f"it refuses a request ({status}: {text})")

    def _message(self, error: Any) -> str:
        """What the server says, in one of the forms that servers use."""
        body = error.body
        if isinstance(body, dict):
            body = body.get("message") or body.get("detail") or body
        text = one_line(self.without_key(str(body or error.message)))
        return text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]}…"


def _read_key(name: str) -> str:
    """The key in an environment variable; empty without a name. Raises SamplingError."""
    if not name:
        return ""
    key = os.environ.get(name, "").strip()
    if not key:
        raise SamplingError(
            f"api_key_env: the environment variable {name} is not set in a worker of Ray: export "
            "it before Ray starts, on every node"
        )
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise SamplingError(f"api_key_env: {name} holds characters that no key has: set it again")
    return key
