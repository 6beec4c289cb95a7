"""A byte-level BPE tokenizer trained on the corpus itself (Sennrich et al. 2016; byte level as in GPT-2)."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

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


def encode(tokenizer: "Tokenizer", texts: Sequence[str]) -> list[list[int]]:
    """Token ids of each text; the end-of-text token is not added, and its spelling inside a text is plain text."""
    tokenizer.encode_special_tokens = True
    return [encoding.ids for encoding in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]
