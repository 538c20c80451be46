"""What looks like a credential is found and never repeated; numbers and what is masked are none."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm import files
from mockllm.core.audit import UNMASKED, Finding, findings
from mockllm.core.exchange import Exchange, Note, Request
from mockllm.core.redact import KNOWN
from mockllm.core.redaction import Redaction
from mockllm.core.response import End, Response, Segment
from tests.core.nasties import CHUNKED, LAST, OK, chunk, counted

HEX = "0123456789abcdef"
UPPER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
SHAPES = {
    "an Anthropic key (sk-ant-…)": "sk-ant-api03-" + HEX * 3 + "_-AA",
    "a key (sk-…)": "sk-proj-" + HEX[:10] + "_" + HEX + UPPER,
    "a Google key (AIza…)": "AIza" + ("Sy" + HEX * 3)[:35],
    "a Google token (ya29.…)": "ya29." + HEX * 2,
    "a GitHub token (gh._…)": "ghp_" + UPPER + HEX,
    "a GitHub token (github_pat_…)": "github_pat_11" + UPPER + "_" + HEX,
    "a GitLab token (glpat-…)": "glpat-" + HEX + "-xyz_",
    "a Hugging Face token (hf_…)": "hf_" + UPPER + "abcd",
    "a Groq key (gsk_…)": "gsk_" + UPPER + HEX,
    "an xAI key (xai-…)": "xai-" + UPPER + HEX,
    "a Perplexity key (pplx-…)": "pplx-" + HEX * 3,
    "an NVIDIA key (nvapi-…)": "nvapi-" + UPPER + "_" + HEX,
    "a Replicate token (r8_…)": "r8_" + UPPER + HEX,
    "a Slack token (xox.-…)": "xoxb-123456789012-" + UPPER,
    "a Stripe key (sk_live_…)": "sk_live_" + HEX,
    "an AWS key (AKIA…)": "AKIAIOSFODNN7EXAMPLE",
    "a JSON Web Token (eyJ…)": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
    "a bearer token": "Bearer " + HEX + "xyzA",
    "a private key": "-----BEGIN OPENSSH PRIVATE KEY-----",
}


def of(request: Request, wire: bytes = OK + b"\r\n", **more: object) -> list[str]:
    response = Response((Segment(0, before=wire),), End.FIN, 0, method=request.method)
    return [str(finding) for finding in findings(Exchange(request, response, **more))]


def post(body: bytes = b"", *headers: tuple[bytes, bytes], target: bytes = b"/v1") -> Request:
    return Request("POST", target, headers, body)


@pytest.mark.parametrize("kind", SHAPES)
def test_shapes_of_well_known_keys_are_found_everywhere(kind):
    key = SHAPES[kind].encode()
    assert of(post(b"{}", (b"X-Y", b"<" + key + b">"))) == [f"request header X-Y: {kind}"]
    assert of(post(json.dumps({"a": f"({key.decode()})"}).encode())) == [f"request body: {kind}"]
    assert of(post(target=b"/a?b=" + key.replace(b" ", b"%20"))) == [f"request target: {kind}"]
    assert of(post(), counted(len(key)) + key) == [f"response body: {kind}"]
    assert of(post(), CHUNKED + chunk(key[:9]) + chunk(key[9:]) + LAST) == [f"response body: {kind}"]
    assert of(post(), OK + b"X: " + key + b"\r\n\r\n") == [f"response header X: {kind}", f"response head: {kind}"]
    assert of(post(), b"HTTP/1.1 103 x\r\nX: " + key + b"\r\n\r\n" + OK + b"\r\n") == [f"response head: {kind}"]
    assert of(post(), CHUNKED + LAST[:-2] + b"X: " + key + b"\r\n\r\n") == [f"response framing: {kind}"]
    assert of(post(), b"garbage " + key) == [f"response framing: {kind}"]
    zipped = gzip.compress(b"a " + key, mtime=0)
    assert of(post(), OK + b"Content-Encoding: gzip\r\n\r\n" + zipped) == [f"response body: {kind}"]
    assert of(post(), meta={"a": key.decode()}) == [f"header line: {kind}"]
    assert of(post(), end_meta={"a": [key.decode()]}) == [f"end line: {kind}"]
    assert of(post(), extras={0: {"a": key.decode()}}) == [f"unknown keys: {kind}"]
    assert of(post(), notes=(Note(0, f"# {key.decode()}"),)) == [f"comment: {kind}"]


def test_spelled_shapes_are_found():
    key = SHAPES["a key (sk-…)"].encode()
    for spelled in (key.replace(b"-", b"%2D"), b"\\u0073" + key[1:]):
        assert of(post(spelled)) == ["request body: a key (sk-…)"]


@pytest.mark.parametrize("kind", SHAPES)
def test_a_finding_does_not_repeat_what_it_found(kind):
    key = SHAPES[kind]
    for line in of(post(json.dumps({"api_key": key, "b": key}).encode(), (b"x-api-key", key.encode()))):
        assert key not in line
        assert key[12:] not in line


@pytest.mark.parametrize(
    ("request_", "lines"),
    [
        (post(b"", (b"Authorization", b"Bearer x"), (b"cookie", b"a=b")), ["header Authorization", "header cookie"]),
        (post(target=b"/v1?key=abc"), ["target"]),
        (post(target=b"http://me:pw@host/"), ["target"]),
        (post(b"", (b"Referer", b"/a?api_key=b")), ["header Referer"]),
        (post(b'{"a":[{"api_key":"x","Password":1234}]}'), ['body, "api_key"', 'body, "Password"']),
        (post(b'not json "api_key": "x"'), ['body, "api_key"']),
        (post(b"password=x", (b"Content-Type", b"application/x-www-form-urlencoded")), ['body, "password"']),
    ],
)
def test_unmasked_values_under_secret_names(request_, lines):
    found = of(request_)
    assert [line for line in found if line.endswith(UNMASKED)] == [f"request {line}: {UNMASKED}" for line in lines]
    assert of(Redaction().request(request_)) == []


def test_unmasked_values_of_an_answer():
    wire = (
        OK + b"Set-Cookie: a=b\r\nSet-Cookie: c=[redacted]; Path=/\r\nLocation: https://u:p@h/\r\nX-Api-Key: k\r\n\r\n"
    )
    found = of(post(), wire)
    assert [line for line in found if line.endswith(UNMASKED)] == [
        f"response header {name}: {UNMASKED}" for name in ("Set-Cookie", "Location", "X-Api-Key")
    ]
    exchange = Exchange(post(), Response((Segment(0, before=wire),), End.FIN, 0, method="POST"))
    assert findings(Redaction().exchange(exchange)) == []


def test_a_user_in_a_url():
    assert of(post(), meta={"upstream": "http://me:pw@host"}) == ["header line: a URL with a user in it"]
    assert of(post(b'{"a":"postgres://me:pw@localhost/db"}')) == [], "a prompt may well hold an example"


@pytest.mark.parametrize(
    "mask", [b"[redacted]", b"Bearer [redacted]", b"***", b"REDACTED", b"<hidden>", b"", b"xxxx", b"  "]
)
def test_what_is_masked_is_no_finding(mask):
    assert of(post(json.dumps({"api_key": mask.strip().decode()}).encode(), (b"Authorization", mask))) == []


@pytest.mark.parametrize(
    "text",
    [
        "+49 30 1234567890123456789012345678901234567890",
        '{"max_tokens":4096,"total_tokens":123456789012345678901234567890,"api_key":null}',
        "a task-management-system-with-long-words and a disk-0123456789abcdef0123",
        "sk-folding-cube-animation-with-a-long-name sk-1 sk-test",
        "Bearer authentication-is-required-for-this and Bearer YOUR_API_KEY",
        "chatcmpl-9f8e7d6c5b4a39281706f5e4d3c2b1a0 call_0123456789abcdefghijklmn",
        "eyJhbGciOiJIUzI1NiJ9 alone",
        "AKIA and AKIAIOSFODNN7EXAMPLEXX1",
        "9f8e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c5b4a39281706f5e4d3c2b1a0",
        "https://host/path?a=b@c",
        "d41d8cd98f00b204e9800998ecf8427e fp_44709d6fcb",
    ],
)
def test_t12_what_is_none(text):
    body = text.encode()
    assert of(post(body), counted(len(body)) + body) == []


@given(st.integers() | st.floats(allow_nan=False) | st.lists(st.integers(min_value=0), max_size=5))
def test_t12_a_number_is_never_a_finding(number):
    body = json.dumps({"n": number, "text": str(number)}).encode()
    assert of(post(body), counted(len(body)) + body) == []


def test_more_names_and_each_finding_once():
    request = post(b'{"seed":"a","b":[{"seed":"b"}]}')
    response = Response((), End.FIN, 0)
    assert findings(Exchange(request, response)) == []
    assert findings(Exchange(request, response), KNOWN.and_also(["Seed"])) == [
        Finding('request body, "seed"', UNMASKED)
    ]


def test_a_body_that_is_not_known():
    assert of(Request("POST", b"*", (), None)) == []


def test_the_shipped_cassettes_are_clean():
    paths = sorted(files.shipped().rglob("*.jsonl"))
    assert len(paths) > 10
    assert {
        (path.name, str(one)) for path in paths for exchange in files.read_all(path) for one in findings(exchange)
    } == set()
