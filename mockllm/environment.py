"""The environment variables through which clients of LLM servers find one.

It reads no environment and starts nothing.
"""

from collections.abc import Mapping
from urllib.parse import urlsplit


def environment(base_url: str) -> dict[str, str]:
    """What to set so that the SDKs of OpenAI, Anthropic and Ollama, and what knows of mockllm, find a server."""
    return {
        "MOCKLLM_BASE_URL": base_url,
        "OPENAI_BASE_URL": f"{base_url}/v1",
        "ANTHROPIC_BASE_URL": base_url,
        "OLLAMA_HOST": base_url,
    }


def past_proxies(base_url: str, outside: Mapping[str, str]) -> dict[str, str]:
    """What to set beside, so that the server is not asked for through a proxy; nothing where `outside` has none."""
    if not any(name.lower() in ("http_proxy", "all_proxy") and value for name, value in outside.items()):
        return {}
    host = urlsplit(base_url).hostname or ""
    return {
        name: ",".join(filter(None, (outside.get("no_proxy") or outside.get("NO_PROXY"), host)))
        for name in ("no_proxy", "NO_PROXY")
    }
