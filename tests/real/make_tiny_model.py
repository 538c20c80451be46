#!/usr/bin/env python3
"""Train a tiny chat model that knows a handful of conversations by heart.

The result is a real model directory (under 1 MB) that a real `mlx_lm.server`
serves as is, so that its genuine HTTP streams can be recorded, with text a
person can read. At temperature 0 it answers the prompts below exactly as
written; to any other prompt it answers with an arbitrary mixture of them.

    pip install 'mlx[cpu]' mlx-lm            # on Linux; plain `mlx-lm` on a Mac
    python make_tiny_model.py tiny-chat --requests requests
    python -m mlx_lm server --model tiny-chat --port 8080 --prefill-step-size 512
    curl -N http://127.0.0.1:8080/v1/chat/completions \
         -H 'content-type: application/json' -d @requests/hello.json

`--requests DIR` also writes one streaming request body for each conversation,
and `--gguf FILE` also exports the model for llama.cpp (`pip install gguf`).
"""

import argparse
import json
import math
import time
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_flatten, tree_map
from mlx_lm import load, stream_generate
from mlx_lm.models import qwen2
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_tokenizer
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

SEED = 7
VOCAB_SIZE = 960  # at most: 256 bytes, the merges and the seven tokens below
MAX_TOKEN_BYTES = 12  # keeps the tokens short, so that an answer streams as many deltas
PEAK_RATE = 4e-3
MAX_STEPS = 200
GOOD_ENOUGH = 0.02  # stop once no token of any answer has a higher loss (98% sure of each)
LONG_TAIL = 40  # how many tokens of the long prompt's end are trained at every step,
REFRESH_EVERY = 15  # how often its beginning is run again,
PREFILL_STEP = 512  # and how many tokens of it at a time

CONTROL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
# mlx_lm.server finds tool calls and reasoning by these four.
MARKER_TOKENS = ["<tool_call>", "</tool_call>", "<think>", "</think>"]

QWEN2_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# ---------------------------------------------------------------- conversations

WEATHER_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
WEATHER_CALL = {"name": "get_weather", "arguments": {"city": "Paris"}}


def user(text):
    return {"role": "user", "content": text}


def diary(notes):
    """A long prompt: numbered notes, then a question."""
    lines = [
        f"Note {i}: at 22:{i % 60:02d} the lift hummed, a dog barked and a door slammed." for i in range(1, notes + 1)
    ]
    return "Here is my diary.\n" + "\n".join(lines) + "\nWhat does the diary show?"


# name -> (messages, tools, the exact answer)
CONVERSATIONS = {
    "diary-fr": (
        [
            {
                "role": "system",
                "content": "Tu aides à tenir un journal de nuisances. Réponds en une phrase.",
            },
            user("Puis-je noter un bruit de voisinage ?"),
        ],
        None,
        "Vous pouvez noter les faits.",
    ),
    "hello": ([user("Say hello")], None, "Hello world"),
    "haiku": (
        [user("Stream a haiku about latency.")],
        None,
        "Tokens drift like snow:\nthe first one waits in silence,\nthen the river runs.",
    ),
    "unicode": ([user("Salue le monde")], None, "Bonjour à tous ! 你好 🎉 — ça marche."),
    "sse": (
        [user("What are server-sent events?")],
        None,
        "Server-sent events are a plain-text way for a web server to push updates to a "
        "client over one ordinary HTTP response. The server answers with the content type "
        "text/event-stream and keeps the connection open. Each event is a few lines of "
        "text, and a blank line ends it. A line that begins with a colon is a comment: "
        "clients ignore it, so a server may send one now and then to keep a quiet "
        "connection alive. If the connection drops, a browser opens it again by itself and "
        "names the last event it saw. Language model servers stream their tokens this way: "
        "one JSON object for each chunk, and [DONE] at the end.",
    ),
    "long": (
        [user(diary(130))],
        None,
        "It shows the same noise night after night: 130 notes, and no silence.",
    ),
    "tool": (
        [user("Weather in Paris?")],
        [WEATHER_TOOL],
        "<tool_call>\n" + json.dumps(WEATHER_CALL) + "\n</tool_call>",
    ),
    "tool-result": (
        [
            user("Weather in Paris?"),
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        # A JSON string, as the API has it. The server parses it for the template.
                        "function": {**WEATHER_CALL, "arguments": json.dumps({"city": "Paris"})},
                    }
                ],
            },
            {
                "role": "tool",
                "tool_call_id": "call_1",
                "content": '{"sky": "clear", "celsius": 18}',
            },
        ],
        [WEATHER_TOOL],
        "It is 18 °C in Paris, with a clear sky.",
    ),
    "reasoning": (
        [user("Is 91 a prime number?")],
        None,
        "<think>91 is odd, so 2 does not divide it. But 7 times 13 is 91.</think>No: 91 is 7 times 13.",
    ),
}

# ChatML. mlx_lm picks its JSON tool parser for a template that has both
# "<tool_call>" and "tool_call.name" in it (tool_parser_type below says so too).
CHAT_TEMPLATE = r"""
{%- if messages[0].role == 'system' or tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content }}{% endif %}
    {%- if tools %}
        {{- '\nCall a tool as <tool_call>\n{"name": ..., "arguments": ...}\n</tool_call>. Tools:' }}
        {%- for tool in tools %}{{- '\n' + (tool | tojson) }}{% endfor %}
    {%- endif %}
    {{- '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if not (loop.first and message.role == 'system') %}
        {{- '<|im_start|>' + message.role + '\n' }}
        {%- if message.reasoning_content %}
            {{- '<think>' + message.reasoning_content + '</think>' }}
        {%- endif %}
        {{- message.content or '' }}
        {%- for call in message.tool_calls or [] %}
            {%- set tool_call = call.function or call %}
            {%- set arguments = tool_call.arguments %}
            {{- '<tool_call>\n{"name": "' + tool_call.name + '", "arguments": ' }}
            {{- arguments if arguments is string else arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% endif %}
""".strip()


def write_json(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


# -------------------------------------------------------------------- tokenizer


def write_tokenizer(out):
    """A byte-level BPE over the conversations, and the files that describe it.

    For a model_type of qwen2, transformers takes the merges from tokenizer.json
    but splits words as Qwen2 does, whatever that file says; so it had better say that.
    """
    corpus = ["system\nuser\nassistant\ntool\n", json.dumps(WEATHER_TOOL), diary(1)]
    for name, (messages, _, answer) in CONVERSATIONS.items():
        if name != "long":  # its repetitions would take most of the merges
            corpus += [m["content"] for m in messages]
        corpus.append(answer)

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        corpus,
        trainers.BpeTrainer(
            vocab_size=VOCAB_SIZE - len(MARKER_TOKENS),
            special_tokens=CONTROL_TOKENS,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            max_token_length=MAX_TOKEN_BYTES,
            show_progress=False,
        ),
    )
    # As in Qwen: one token each, but part of the text rather than control tokens.
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in MARKER_TOKENS])
    tokenizer.save(str(out / "tokenizer.json"))
    write_json(
        out / "tokenizer_config.json",
        {
            "tokenizer_class": "Qwen2Tokenizer",
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "add_bos_token": False,
            "clean_up_tokenization_spaces": False,
            "model_max_length": 8192,
            "tool_parser_type": "json_tools",
            "chat_template": CHAT_TEMPLATE,
        },
    )
    return tokenizer


# ------------------------------------------------------------------------ model


def write_config(out, tokenizer):
    """Two layers of the Qwen2 architecture."""
    config = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": 96,
        "intermediate_size": 224,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": False,
        "hidden_act": "silu",
        "torch_dtype": "float16",
        "vocab_size": tokenizer.get_vocab_size(),
        "eos_token_id": tokenizer.token_to_id("<|im_end|>"),
    }
    write_json(out / "config.json", config)
    return config


def save_weights(out, model):
    half = tree_map(lambda w: w.astype(mx.float16), model.parameters())
    mx.save_safetensors(str(out / "model.safetensors"), dict(tree_flatten(half)), metadata={"format": "mlx"})


# --------------------------------------------------------------------- training


def prompt_tokens(tokenizer, messages, tools):
    """The prompt exactly as the server makes it: it parses the arguments of tool calls."""
    messages = json.loads(json.dumps(messages))
    for message in messages:
        for call in message.get("tool_calls", []):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=True)


def make_batch(examples):
    """(prompt, answer) pairs -> inputs, targets and a mask that picks the answers."""
    width = max(len(p) + len(a) for p, a in examples)
    rows, masks = [], []
    for prompt, answer in examples:
        pad = width - len(prompt) - len(answer)
        rows.append(prompt + answer + [0] * pad)
        masks.append([0] * len(prompt) + [1] * len(answer) + [0] * pad)
    rows, masks = mx.array(rows), mx.array(masks)
    return rows[:, :-1], rows[:, 1:], masks[:, 1:]


class FrozenPrefix:
    """The keys and values of a prompt's beginning, which get no gradient.

    Thousands of tokens take seconds each time, forward alone, so the long
    prompt's beginning is run only now and then, and its end at every step.
    """

    def __init__(self, cache):
        self.offset = cache.offset
        self.keys = cache.keys[..., : cache.offset, :]
        self.values = cache.values[..., : cache.offset, :]

    def update_and_fetch(self, keys, values):
        return (
            mx.concatenate([self.keys, keys], axis=2),
            mx.concatenate([self.values, values], axis=2),
        )

    @classmethod
    def run(cls, model, tokens):
        cache = make_prompt_cache(model)
        for i in range(0, len(tokens), PREFILL_STEP):
            model(mx.array([tokens[i : i + PREFILL_STEP]]), cache=cache)
            mx.eval([c.state for c in cache])
        return [cls(c) for c in cache]


def train(model, examples):
    """Overfit, on the answers alone, until every one of their tokens is certain."""
    # Batches of like lengths, since padding costs time too.
    short, medium, [(long_prompt, long_answer)] = (
        [e for e in examples if low <= len(e[0]) + len(e[1]) < high]
        for low, high in [(0, 90), (90, 1000), (1000, math.inf)]
    )
    beginning, end = long_prompt[:-LONG_TAIL], long_prompt[-LONG_TAIL:]
    batches = [make_batch(group) for group in (short, medium, [(end, long_answer)])]
    answer_tokens = sum(len(answer) for _, answer in examples)

    def loss(model, prefix):
        total, worst = 0, []
        for (inputs, targets, mask), cache in zip(batches, [None, None, prefix], strict=False):
            losses = nn.losses.cross_entropy(model(inputs, cache=cache), targets) * mask
            total = total + losses.sum()
            worst.append(losses.max())
        return total / answer_tokens, mx.stack(worst).max()

    def learning_rate(step):
        warm = mx.minimum(step / 20, 1.0)
        return PEAK_RATE * warm * (0.55 + 0.45 * mx.cos(math.pi * step / MAX_STEPS))

    optimizer = optim.AdamW(learning_rate, weight_decay=0.01, bias_correction=True)
    loss_and_grad = nn.value_and_grad(model, loss)
    start = time.time()
    for step in range(MAX_STEPS):
        fresh = step % REFRESH_EVERY == 0
        if fresh:
            prefix = FrozenPrefix.run(model, beginning)
        (value, worst), grads = loss_and_grad(model, prefix)
        if fresh:
            print(
                f"step {step:3d}  mean loss {value.item():.4f}  worst token {worst.item():.4f}  "
                f"{time.time() - start:.0f} s",
                flush=True,
            )
            if worst.item() < GOOD_ENOUGH:
                return
        grads, _ = optim.clip_grad_norm(grads, 1.0)
        optimizer.update(model, grads)
        mx.eval(model.parameters(), optimizer.state)


def check(out):
    """Load the directory as the server does and compare every greedy answer."""
    model, tokenizer = load(str(out))
    wrong = 0
    for name, (messages, tools, answer) in CONVERSATIONS.items():
        prompt = prompt_tokens(tokenizer, messages, tools)
        parts = [r.text for r in stream_generate(model, tokenizer, prompt, max_tokens=400)]
        got = "".join(parts)
        wrong += got != answer
        print(
            f"{'ok   ' if got == answer else 'WRONG'} {name:12s} prompt {len(prompt):4d} tokens, "
            f"answer {len(parts):3d} tokens: {got[:60]!r}"
        )
    return wrong


# ----------------------------------------------------------------- optional parts


def write_requests(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, (messages, tools, _) in CONVERSATIONS.items():
        body = {"model": "default_model", "stream": True, "temperature": 0, "messages": messages}
        if tools:
            body["tools"] = tools
        write_json(folder / f"{name}.json", body)


def write_gguf(out, path):
    """The same weights for llama.cpp. Qwen2 needs no reordering: only the names differ."""
    import gguf
    import numpy as np

    config = json.loads((out / "config.json").read_text())
    bpe = json.loads((out / "tokenizer.json").read_text())
    ids = dict(bpe["model"]["vocab"].items())
    ids.update({t["content"]: t["id"] for t in bpe["added_tokens"]})
    tokens = sorted(ids, key=ids.get)
    kinds = dict.fromkeys(CONTROL_TOKENS, gguf.TokenType.CONTROL)
    kinds.update(dict.fromkeys(MARKER_TOKENS, gguf.TokenType.USER_DEFINED))

    w = gguf.GGUFWriter(str(path), "qwen2")
    w.add_name(out.name)
    w.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    w.add_context_length(config["max_position_embeddings"])
    w.add_embedding_length(config["hidden_size"])
    w.add_feed_forward_length(config["intermediate_size"])
    w.add_block_count(config["num_hidden_layers"])
    w.add_head_count(config["num_attention_heads"])
    w.add_head_count_kv(config["num_key_value_heads"])
    w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    w.add_rope_freq_base(config["rope_theta"])
    w.add_vocab_size(config["vocab_size"])
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(tokens)
    w.add_token_types([kinds.get(t, gguf.TokenType.NORMAL) for t in tokens])
    w.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in bpe["model"]["merges"]])
    w.add_eos_token_id(ids["<|im_end|>"])
    w.add_pad_token_id(ids["<|endoftext|>"])
    w.add_add_bos_token(False)
    w.add_chat_template(CHAT_TEMPLATE)

    names = {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "lm_head": "output",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    for name, weight in mx.load(str(out / "model.safetensors")).items():
        module, kind = name.rsplit(".", 1)
        if module.startswith("model.layers."):
            _, _, layer, part = module.split(".", 3)
            target = f"blk.{layer}.{names[part]}.{kind}"
        else:
            target = f"{names[module]}.{kind}"
        # llama.cpp keeps vectors (norms and biases) in float32.
        w.add_tensor(target, np.array(weight.astype(mx.float32) if weight.ndim == 1 else weight))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path, help="the model directory to write")
    parser.add_argument("--requests", type=Path, metavar="DIR", help="also write request bodies")
    parser.add_argument("--gguf", type=Path, metavar="FILE", help="also export for llama.cpp")
    args = parser.parse_args()

    mx.set_default_device(mx.cpu)
    mx.random.seed(SEED)
    args.out.mkdir(parents=True, exist_ok=True)
    config = write_config(args.out, write_tokenizer(args.out))
    tokenizer = load_tokenizer(args.out)
    examples = [
        (
            prompt_tokens(tokenizer, messages, tools),
            [*tokenizer.encode(answer, add_special_tokens=False), config["eos_token_id"]],
        )
        for messages, tools, answer in CONVERSATIONS.values()
    ]
    model = qwen2.Model(qwen2.ModelArgs.from_dict(config))
    count = sum(w.size for _, w in tree_flatten(model.parameters()))
    print(f"{count} parameters, {config['vocab_size']} tokens")
    train(model, examples)
    save_weights(args.out, model)
    wrong = check(args.out)
    if args.requests:
        write_requests(args.requests)
    if args.gguf:
        write_gguf(args.out, args.gguf)
    raise SystemExit(f"{wrong} answers are wrong" if wrong else 0)


if __name__ == "__main__":
    main()
