"""The tokenizer: lossless, deterministic, never larger than asked."""

import hashlib
import subprocess
import sys
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.basics.errors import InputError
from meshwright.trainer.corpus import open_corpus
from meshwright.trainer.data_readers import pieces
from meshwright.trainer.tokenizer import END_OF_TEXT, encode, require_tokenizers, train_tokenizer

pytest.importorskip("tokenizers")
SENTENCES = ["the quick brown fox jumps over the lazy dog", "pack my box with five dozen jugs"] * 20
TOKENIZER = train_tokenizer(SENTENCES, 300)


@given(st.text(st.characters(codec="utf-8")))
@settings(max_examples=200, deadline=None)
def test_any_text_comes_back(text: str) -> None:
    (ids,) = encode(TOKENIZER, [text])
    assert TOKENIZER.decode(ids, skip_special_tokens=False) == text
    assert all(0 < token < 300 for token in ids)


def test_the_end_of_text_token_is_never_made_by_text() -> None:
    assert TOKENIZER.token_to_id(END_OF_TEXT) == 0
    (ids,) = encode(TOKENIZER, [f"a {END_OF_TEXT} b"])
    assert 0 not in ids


def test_merges_shorten_the_text_and_stop_at_the_vocabulary() -> None:
    assert TOKENIZER.get_vocab_size() == 300
    (ids,) = encode(TOKENIZER, [SENTENCES[0]])
    assert len(ids) < len(SENTENCES[0]) / 1.5
    assert train_tokenizer(["ab"], 1000).get_vocab_size() == 257  # nothing occurs twice: bytes and the end only


TRAIN = """
import hashlib
from itertools import islice
from meshwright.trainer.corpus import open_corpus
from meshwright.trainer.data_readers import pieces
from meshwright.trainer.tokenizer import train_tokenizer
texts = (piece.text for piece in islice(pieces(open_corpus(None)), 40))
print(hashlib.sha256(train_tokenizer(texts, 1000).to_str().encode()).hexdigest())
"""


def test_another_process_learns_the_same_tokenizer() -> None:
    texts = (piece.text for piece in islice(pieces(open_corpus(None)), 40))
    here = hashlib.sha256(train_tokenizer(texts, 1000).to_str().encode()).hexdigest()
    there = subprocess.run([sys.executable, "-c", TRAIN], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == here


def test_a_vocabulary_without_room_for_every_byte_is_refused() -> None:
    with pytest.raises(InputError, match=r"vocab = 256: .*at least 257"):
        train_tokenizer(SENTENCES, 256)


def test_a_missing_package_is_one_line_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(InputError, match=r"pip install 'meshwright\[train\]'") as caught:
        require_tokenizers()
    assert "\n" not in str(caught.value)
