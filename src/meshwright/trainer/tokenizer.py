"""Text into token ids: by the tokenizer of the model, or by a byte-level BPE trained on the corpus itself (Sennrich et
al. 2016; byte level as in GPT-2)."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.basics.errors import bad_input

if TYPE_CHECKING:
    from tokenizers import Tokenizer

END_OF_TEXT = "<|endoftext|>"
SMALLEST_VOCAB = 257  # every byte, and the end of a document


def require_tokenizers() -> str:
    """The version of the `tokenizers` package. Raises InputError with the cure when it is not installed."""
    try:
        import tokenizers
    except ImportError as error:
        raise bad_input("the package 'tokenizers' is not installed", legal="pip install 'meshwright[train]'") from error
    return str(tokenizers.__version__)


def train_tokenizer(texts: Iterable[str], vocab: int) -> "Tokenizer":
    """A tokenizer of at most `vocab` entries learned from `texts`; the same texts give the same tokenizer.

    Entry 0 is the end-of-text token. Raises InputError when `vocab` cannot hold every byte.
    """
    if vocab < SMALLEST_VOCAB:
        raise bad_input(
            "a byte-level tokenizer needs every byte and an end-of-text token", field="vocab", value=vocab,
            legal=f"at least {SMALLEST_VOCAB}",
        )  # fmt: skip
    require_tokenizers()
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab, min_frequency=2, show_progress=False, special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )  # fmt: skip
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def load_tokenizer(path: Path) -> "Tokenizer":
    """The tokenizer in a `tokenizer.json`, which neither cuts nor pads. Raises InputError when it cannot be read."""
    require_tokenizers()
    from tokenizers import Tokenizer

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise bad_input("cannot be read", field="data.tokenizer", file=str(path)) from error
    try:
        tokenizer = Tokenizer.from_str(text)
    except Exception as error:  # the package raises nothing narrower
        reason = str(error).strip().splitlines()[0]
        raise bad_input(f"is no tokenizer ({reason})", field="data.tokenizer", file=str(path)) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def end_of_text(tokenizer: "Tokenizer", path: Path, stated: str | None = None) -> int:
    """The id of the token after each document: `stated`, else the `eos_token` of the tokenizer_config.json beside the
    `tokenizer.json` at `path`, else the `eos_token_id` of the config.json there, else `<|endoftext|>`.

    Raises InputError when there is none of them.
    """
    if stated is None:
        written = _object_in(path.with_name("tokenizer_config.json")).get("eos_token")
        named = written.get("content") if isinstance(written, dict) else written
        number = _object_in(path.with_name("config.json")).get("eos_token_id")
        number = number[0] if isinstance(number, list) and number else number
        if not isinstance(named, str) and isinstance(number, int) and tokenizer.id_to_token(number) is not None:
            return number
        stated = named if isinstance(named, str) else END_OF_TEXT
    found = tokenizer.token_to_id(stated)
    if found is None:
        raise bad_input(f"is no token of {path}", field="data.end_of_text", value=repr(stated),
                        legal="the token that ends a document, as tokenizer.json spells it")  # fmt: skip
    return int(found)


def token_kinds(tokenizer: "Tokenizer") -> int:
    """One more than its largest token id: ids may have gaps."""
    return 1 + max(tokenizer.get_vocab(with_added_tokens=True).values())


def _object_in(file: Path) -> dict[str, Any]:
    try:
        data = json.loads(file.read_bytes())
    except OSError:
        return {}
    except ValueError as error:
        raise bad_input("is not JSON", file=str(file)) from error
    return data if isinstance(data, dict) else {}


def encode(tokenizer: "Tokenizer", texts: Sequence[str]) -> list[list[int]]:
    """Token ids of each text; the end-of-text token is not added, and its spelling inside a text is plain text."""
    tokenizer.encode_special_tokens = True
    return [encoding.ids for encoding in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]
