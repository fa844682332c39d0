"""Rendering: agrees with transformers' own, gives the deltas that a rollout appends, and the masks that SFT trains on.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from troupe_policy.model.init_model import train_tokenizer
from troupe_policy.model.tokens import Tokens
from troupe_policy.render.renderer import Piece, RenderError, Renderer
from troupe_policy.render.service import _tools

# Template that renders each message separately, and tools in the system message.
PLAIN = """{%- if tools %}{{ '<|im_start|>system\n' }}{% for tool in tools %}{{ tool | tojson }}{% endfor %}
{{- '<|im_end|>\n' }}{% endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

# Template that renders successive tool responses in one user message, as Qwen's templates do.
GROUPING = """{%- for message in messages %}
{%- if message.role == 'tool' %}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}
{{- '\n<tool_response>\n' + message.content + '\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\n' }}{% endif %}
{%- else %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

TOOL = {"name": "run", "description": "runs <code> & “more”", "parameters": {"type": "object"}}
TALK = [
    {"role": "user", "content": "What is 12 * 34?  Tabs\tand ünïcode."},
    {"role": "assistant", "content": "<tool_call>\n12 * 34\n</tool_call>"},
    {"role": "tool", "content": "408\n"},
    {"role": "tool", "content": ""},
    {"role": "assistant", "content": "It is 408."},
]


@pytest.fixture(scope="module", params=["plain", "grouping"])
def directory(request, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    corpus = folder / "corpus.txt"
    corpus.write_text("What is the answer? It is run by the tool.\n" * 20)
    template = {"plain": PLAIN, "grouping": GROUPING}[request.param]
    train_tokenizer(corpus, 320, ("<tool_call>", "</tool_call>"), template).save_pretrained(folder)
    return folder


def test_the_bytes_of_tokens_one_after_the_other_are_the_text_of_any_tokens(directory: Path) -> None:
    tokens = Renderer(directory).tokens
    pieces = tokens.token_bytes()
    draw = random.Random(5)
    texts = [tokens.encode("日本 <|im_end|>ünï 👩‍👩‍👧\n  x" * 3)]
    texts += [[draw.randrange(len(pieces)) for _ in range(draw.randrange(1, 30))] for _ in range(500)]
    for ids in texts:
        assert b"".join(pieces[i] for i in ids).decode(errors="replace") == tokens.decode(ids)


def test_a_tokenizer_that_decodes_in_another_way_says_no_bytes(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "</s>": 1}, unk_token="</s>"))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert Tokens(tmp_path).token_bytes() == []


def reference(directory: Path) -> PreTrainedTokenizerFast:
    return AutoTokenizer.from_pretrained(directory)


def test_a_prompt_is_what_transformers_renders(directory: Path) -> None:
    tools = _tools(json.dumps([TOOL]))
    for messages, given in ((TALK[:1], None), (TALK[:1], tools), (TALK[:4], tools)):
        piece = Renderer(directory).prompt(messages, given)
        text = reference(directory).apply_chat_template(
            messages, tools=given, add_generation_prompt=True, tokenize=False
        )
        assert piece.text == text
        assert piece.tokens == reference(directory)(text, add_special_tokens=False).input_ids
        assert piece.mask == [0] * len(piece.tokens)


def test_a_rollouts_pieces_are_the_conversation_that_sft_sees(directory: Path) -> None:
    renderer = Renderer(directory)
    stop = renderer.tokens.encode("<|im_end|>")
    assert stop == renderer.stop_tokens[:1]
    prompt = renderer.prompt(TALK[:1], None)
    answers = [renderer.tokens.encode(TALK[i]["content"]) + stop for i in (1, 4)]
    response = renderer.tool_responses([TALK[2]["content"], TALK[3]["content"]])
    whole = renderer.conversation(TALK, None)
    assert whole.tokens == prompt.tokens + answers[0] + response.tokens + answers[1]
    pieces = [(0, prompt.tokens), (1, answers[0]), (0, response.tokens), (1, answers[1])]
    assert whole.mask == [bit for bit, tokens in pieces for _ in tokens]
    text = reference(directory).apply_chat_template(TALK, tokenize=False)
    assert text.startswith(whole.text) and text[len(whole.text) :] == "\n"
    assert renderer.decode(whole.tokens) == whole.text


TEMPLATES = Path(__file__).parents[3] / "recipes/templates"


def forcing(directory: Path) -> Renderer:
    return Renderer(directory, TEMPLATES / "rstar2.jinja")


def test_the_template_of_rstar2_is_hermes_with_a_generation_prompt_that_opens_the_reasoning(directory: Path) -> None:
    hermes, tools = Renderer(directory, TEMPLATES / "hermes.jinja"), _tools(json.dumps([TOOL]))
    system = {"role": "system", "content": "Think first."}
    for messages in (TALK[:1], [system, *TALK[:1]], TALK[:4], [system, *TALK[:3]]):
        for given in (None, tools):
            assert forcing(directory).prompt(messages, given).text == hermes.prompt(messages, given).text + "<reason>"
    following = hermes.tool_responses(["408\n", ""])
    assert following.text.endswith("<|im_start|>assistant\n")
    assert forcing(directory).tool_responses(["408\n", ""]).text == following.text + "<reason>"


def test_what_a_generation_prompt_forces_is_context_in_a_rollout_and_in_sft(directory: Path) -> None:
    renderer = forcing(directory)
    talk = [dict(m, content=f"<reason>so</reason>{m['content']}") if m["role"] == "assistant" else m for m in TALK]
    said = [m["content"].removeprefix("<reason>") + "<|im_end|>" for m in talk if m["role"] == "assistant"]
    rollout: list[Piece] = [renderer.prompt(talk[:1], None)]
    for number, text in enumerate(said):
        ids = renderer.tokens.encode(text)
        rollout.append(Piece(text, ids, [1] * len(ids)))
        if number == 0:
            rollout.append(renderer.tool_responses(["408\n", ""]))
    whole = renderer.conversation(talk, None)
    assert whole.text == "".join(piece.text for piece in rollout)
    assert whole.tokens == [token for piece in rollout for token in piece.tokens]
    assert whole.mask == [bit for piece in rollout for bit in piece.mask]
    assert whole.text.count("assistant\n<reason>so</reason>") == 2


def test_a_demonstration_without_the_forced_text_is_learned_as_it_is(directory: Path) -> None:
    mixed = [*TALK[:4], {"role": "assistant", "content": "<reason>so</reason>It is 408."}]
    hermes = Renderer(directory, TEMPLATES / "hermes.jinja")
    assert forcing(directory).conversation(TALK, None) == hermes.conversation(TALK, None)
    whole = forcing(directory).conversation(mixed, None)
    assert whole.text == hermes.conversation(mixed, None).text
    assert whole.text.count("<reason>") == 1 and "assistant\n<tool_call>" in whole.text


def test_conversations_rendered_together_are_those_rendered_alone_and_are_encoded_in_one_call(directory: Path) -> None:
    renderer = forcing(directory)
    talks = [TALK, [TALK[0], TALK[-1]], [TALK[0], {"role": "assistant", "content": "<reason>so</reason>408"}]]
    alone = [renderer.conversation(talk, None) for talk in talks]
    calls, encode = [], renderer.tokens.encode_all
    renderer.tokens.encode_all = lambda texts: calls.append(texts) or encode(texts)  # type: ignore[method-assign]
    assert renderer.conversations(talks, None) == alone
    assert len(calls) == 1


def test_text_of_special_tokens_is_kept_when_decoding(directory: Path) -> None:
    renderer = Renderer(directory)
    text = "<|im_start|>assistant\n<tool_call>ü  x</tool_call><|im_end|>"
    assert renderer.decode(renderer.tokens.encode(text)) == text
    assert renderer.encode([text, "12"]) == [renderer.tokens.encode(text), renderer.tokens.encode("12")]


def test_a_conversation_of_several_questions_is_learned_from_whole(directory: Path) -> None:
    renderer = Renderer(directory)
    again = {"role": "user", "content": "And then?"}
    whole = renderer.conversation([*TALK, again, TALK[-1]], None)
    first = renderer.conversation(TALK, None)
    assert whole.tokens[: len(first.tokens)] == first.tokens
    rest = Piece("", whole.tokens[len(first.tokens) :], whole.mask[len(first.tokens) :])
    asked = [token for token, bit in zip(rest.tokens, rest.mask) if not bit]
    assert "And then?" in renderer.decode(asked)
    learned = [token for token, bit in zip(rest.tokens, rest.mask) if bit]
    assert renderer.decode(learned).startswith(TALK[-1]["content"])
    assert "And then?" not in renderer.decode(learned)


def test_what_cannot_be_rendered_says_why(directory: Path, tmp_path: Path) -> None:
    renderer = Renderer(directory)
    with pytest.raises(RenderError, match="end with an assistant"):
        renderer.conversation(TALK[:4], None)
    with pytest.raises(RenderError, match="only tool responses and user messages"):
        renderer.conversation([*TALK, {"role": "system", "content": "x"}, TALK[4]], None)
    with pytest.raises(RenderError, match="no tool response"):
        renderer.tool_responses([])
    bad = tmp_path / "bad.jinja"
    for source, reason in (
        ("{% if %}", "does not compile"),
        ("{{ raise_exception('no system, please') }}", "no system, please"),
        ("{{ messages[0].content }}", "drops the content of assistant messages"),
        ("{% for m in messages %}{{ m.content }}##{% endfor %}", "none of"),
    ):
        bad.write_text(source)
        with pytest.raises(RenderError, match=reason):
            Renderer(directory, bad).tool_responses(["x"])


def test_a_model_without_a_chat_template_is_refused_unless_one_is_given(directory: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "tokenizer.json").write_bytes((directory / "tokenizer.json").read_bytes())
    (bare / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')
    with pytest.raises(RenderError, match="no chat template: set model.template"):
        Renderer(bare)
    given = tmp_path / "given.jinja"
    given.write_text(PLAIN)
    assert Renderer(bare, given).prompt(TALK[:1], None).text.endswith("assistant\n")
    other = tmp_path / "other.jinja"
    other.write_text(PLAIN + " ")
    assert Renderer(bare, given).digest == Renderer(bare, given).digest != Renderer(bare, other).digest


def test_the_renderer_does_not_import_torch(directory: Path) -> None:
    code = (
        "import sys; import troupe_policy.render.service, troupe_policy.server\n"
        "from troupe_policy.render.renderer import Renderer\n"
        f"Renderer({str(directory)!r}).prompt([{{'role': 'user', 'content': 'x'}}], None)\n"
        "print('torch' in sys.modules)"
    )
    root = Path(__file__).parents[2]
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, cwd=root, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "False"
