#!/usr/bin/env python3
"""Writes text as the token shards that sdp-train and llm.c read.

    prepare_tokens.py INPUT... --out DIR --name NAME [--val-tokens N] ...
    prepare_tokens.py --dataset HuggingFaceFW/fineweb --subset sample-10BT --out DIR --name fineweb

An INPUT is a file, a folder or - (standard input). *.jsonl has one document per line, *.parquet one per row; any other
file is plain text, a single document (--document divides it). *.gz files of text and JSON are unpacked.

DIR gets NAME_val_000000.bin with the first tokens and NAME_train_000001.bin, .._000002.bin, .. with the others. The
end-of-text token precedes every document. Tokens have 16 bits if the vocabulary fits and 32 if not. A shard is
renamed to its final name when it is complete, and NAME.state.json says where the next one begins: --resume continues
there. The same input and options give the same bytes, with any number of processes. A tokenizer.json is copied to
NAME.tokenizer.json, so that models trained on the shards are exported with it.

Exit status: 0 everything was written, 2 the arguments are wrong or a package is missing, 3 the input cannot be read.
"""

import argparse
import array
import collections
import concurrent.futures
import hashlib
import itertools
import multiprocessing
import os
import pathlib
import sys
import threading

import text_documents
from text_documents import InputError, MissingPackage, need
from token_shards import Output, State, UsageError, read_state, write_state

BATCH_CHARACTERS = 1 << 20  # of documents that a process tokenizes at a time
BATCHES_AHEAD = 4  # per process; limits the memory
END_OF_TEXT = ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"]


# --- tokenizers -------------------------------------------------------------------------------------------------


class Tiktoken:
    def __init__(self, name):
        tiktoken = need("tiktoken", f"--tokenizer {name}")
        try:
            self.encoding = tiktoken.get_encoding(name)
        except ValueError as error:
            raise UsageError(f"--tokenizer {name}: neither a file nor one of tiktoken's encodings ({error})") from error
        except OSError as error:  # raised by requests
            raise UsageError(
                f"--tokenizer {name}: tiktoken cannot download its files ({error}). Download them where there is a "
                "network and set TIKTOKEN_CACHE_DIR to their folder, or give a tokenizer.json."
            ) from error
        self.vocab_size = self.encoding.n_vocab
        self.fingerprint = f"tiktoken {name}"

    def id_of(self, token):
        return self.encoding.encode_single_token(token) if token in self.encoding.special_tokens_set else None

    def encode(self, texts):
        return [self.encoding.encode_ordinary(text) for text in texts]


class TokenizersFile:
    """A tokenizer.json of Hugging Face's library. Special tokens that occur in a text are encoded as text."""

    def __init__(self, path):
        tokenizers = need("tokenizers", f"--tokenizer {path}")
        content = pathlib.Path(path).read_text()
        try:
            self.tokenizer = tokenizers.Tokenizer.from_str(content)
        except Exception as error:  # the library raises nothing more specific
            raise UsageError(f"--tokenizer {path}: not a tokenizer.json ({error})") from error
        self.tokenizer.encode_special_tokens = True
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.vocab_size = max(self.tokenizer.get_vocab(with_added_tokens=True).values()) + 1
        self.fingerprint = f"tokenizer.json {hashlib.sha256(content.encode()).hexdigest()}"
        self.file_content = content

    def id_of(self, token):
        return self.tokenizer.token_to_id(token)

    def encode(self, texts):
        return [e.ids for e in self.tokenizer.encode_batch(texts, add_special_tokens=False)]


class Bytes:
    """The bytes of the text in UTF-8; 256 is the end-of-text token. Needs no package."""

    vocab_size = 257
    fingerprint = "bytes"

    def id_of(self, token):
        return 256 if token == END_OF_TEXT[0] else None

    def encode(self, texts):
        return [text.encode() for text in texts]


def open_tokenizer(name):
    if name == "bytes":
        return Bytes()
    return TokenizersFile(name) if name.endswith(".json") or os.path.exists(name) else Tiktoken(name)


def end_of_text(tokenizer, wanted):
    """Id of the end-of-text token."""
    names = [wanted] if wanted else [name for name in END_OF_TEXT if tokenizer.id_of(name) is not None]
    if len(names) != 1 or tokenizer.id_of(names[0]) is None:
        found = f"has {', '.join(names)}" if len(names) > 1 else f"has no {wanted or ', '.join(END_OF_TEXT)}"
        raise UsageError(f"--end-of-text: the vocabulary {found}. Name the token that begins a document.")
    return tokenizer.id_of(names[0])


# --- tokenizing, in this process or several -----------------------------------------------------------------------

worker = None  # in a process of the pool: its tokenizer


class Worker:
    def __init__(self, tokenizer_name, end_of_text_name):
        self.tokenizer = open_tokenizer(tokenizer_name)
        self.end = end_of_text(self.tokenizer, end_of_text_name)
        self.typecode = "H" if self.tokenizer.vocab_size <= 1 << 16 else "I"
        self.token_bytes = array.array(self.typecode).itemsize

    def tokens_of(self, texts):
        """All tokens, with an end-of-text token before each document, and the number of tokens of every document."""
        documents = [[self.end, *ids] for ids in self.tokenizer.encode(texts)]
        flat = array.array(self.typecode, itertools.chain.from_iterable(documents))
        if sys.byteorder == "big":  # shards are little-endian
            flat.byteswap()
        return flat, [len(ids) for ids in documents]


def start_worker(*arguments):
    global worker
    # Otherwise a process of the pool would outlive a killed parent.
    threading.Thread(target=lambda: (multiprocessing.parent_process().join(), os._exit(1)), daemon=True).start()
    worker = Worker(*arguments)


def run_worker(texts):
    return worker.tokens_of(texts)


def batches_of(documents):
    texts, characters = [], 0
    for text, _ in documents:
        texts.append(text)
        characters += len(text)
        if characters >= BATCH_CHARACTERS:
            yield texts
            texts, characters = [], 0
    if texts:
        yield texts


def tokenized(documents, own_worker, processes, arguments):
    """Results of Worker.tokens_of in the order of the documents, computed at most a few batches ahead."""
    if processes == 1:
        yield from map(own_worker.tokens_of, batches_of(documents))
        return
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(processes, context, start_worker, arguments) as pool:
        pending = collections.deque()
        try:
            for texts in batches_of(documents):
                pending.append(pool.submit(run_worker, texts))
                if len(pending) >= BATCHES_AHEAD * processes:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


# --- resuming after an interruption ---------------------------------------------------------------------------------


def of_file(path):
    """Path, size and modification time of a file; for standard input, its name."""
    if path is None:
        return ["-"]
    status = path.stat()
    return [str(path), status.st_size, status.st_mtime_ns]


def settings_of(options, worker):
    """Settings that a later call must share to resume with the shards."""
    source = {"dataset": [options.dataset, options.subset, options.split]}
    if not options.dataset:
        files = text_documents.files_of(options.inputs)
        source = {"inputs": [of_file(path) for path, _ in files]}
    return source | {
        "tokenizer": worker.tokenizer.fingerprint,
        "end_of_text": worker.end,
        "document": options.document,
        "text_key": options.text_key,
        "shard_tokens": options.shard_tokens,
        "val_tokens": options.val_tokens,
    }


def begin(options, settings, worker):
    """The state of a call that does not resume."""
    revision = text_documents.dataset_revision(options.dataset) if options.dataset else None
    state = State(settings, revision)
    if isinstance(worker.tokenizer, TokenizersFile):
        (options.out / f"{options.name}.tokenizer.json").write_text(worker.tokenizer.file_content)
    write_state(options, state)
    return state


# --- the program ----------------------------------------------------------------------------------------------------


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="*", metavar="INPUT", help="files, folders or -")
    parser.add_argument("--dataset", metavar="REPO", help="a data set of the Hugging Face hub, streamed")
    parser.add_argument("--subset", metavar="NAME", help="with --dataset: its configuration")
    parser.add_argument("--split", metavar="NAME", default="train", help="with --dataset (train)")
    parser.add_argument("--out", metavar="DIR", type=pathlib.Path, required=True, help="folder for the shards")
    parser.add_argument("--name", default="tokens", help="prefix of the shards' names (tokens)")
    parser.add_argument(
        "--tokenizer", default="gpt2", metavar="NAME|FILE", help="an encoding of tiktoken, a tokenizer.json, or bytes (gpt2)"
    )
    parser.add_argument("--end-of-text", metavar="TOKEN", help=f"token before each document (default: the one of {END_OF_TEXT} in the vocabulary)")
    parser.add_argument(
        "--document", choices=["file", "paragraph", "line"], default="file", help="plain text: the unit of a document (file)"
    )
    parser.add_argument("--text-key", default="text", metavar="KEY", help="key of the text in JSON, Parquet and --dataset (text)")
    parser.add_argument("--shard-tokens", type=int, default=100_000_000, metavar="N", help="tokens per shard (100000000)")
    parser.add_argument(
        "--val-tokens", type=int, metavar="N", help="tokens in the validation shard, 0: none (default: as --shard-tokens)"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count(), metavar="N", help="processes that tokenize (default: all cores)")
    parser.add_argument("--resume", action="store_true", help="continue after the complete shards")
    options = parser.parse_args(arguments)
    if options.val_tokens is None:
        options.val_tokens = options.shard_tokens
    if bool(options.inputs) == bool(options.dataset):
        parser.error("either INPUT or --dataset is needed")
    if options.shard_tokens < 1 or options.val_tokens < 0 or options.processes < 1:
        parser.error("--shard-tokens and --processes must be at least 1, --val-tokens at least 0")
    if options.resume and "-" in options.inputs:
        parser.error("--resume cannot continue with standard input, which cannot be read again")
    if any(part in options.name for part in ("/", "train", "val")):
        parser.error("--name is a prefix of file names, to which _train and _val are added; it must not contain them or a slash")
    return options


def documents_from(options, state):
    first = state.documents
    if options.dataset:
        return text_documents.dataset_documents(
            options.dataset, options.subset, options.split, options.text_key, state.revision, first
        )
    documents = text_documents.file_documents(options.inputs, options.document, options.text_key)
    return itertools.islice(documents, first, None)


def prepare(options):
    own_worker = Worker(options.tokenizer, options.end_of_text)
    options.out.mkdir(parents=True, exist_ok=True)
    settings = settings_of(options, own_worker)
    state = read_state(options, settings, own_worker.token_bytes) or begin(options, settings, own_worker)
    if state.complete:
        print(f"{options.out}: complete")
        return
    if options.dataset and state.revision is None:
        print(
            f"warning: the revision of --dataset {options.dataset} is unknown, so --resume cannot detect whether the "
            "data set has changed",
            file=sys.stderr,
        )
    output = Output(options, state, own_worker.token_bytes)
    batches = tokenized(
        documents_from(options, state),
        own_worker,
        options.processes,
        (options.tokenizer, options.end_of_text),
    )
    for tokens, lengths in batches:
        at = 0
        for length in lengths:
            output.add(tokens[at : at + length])
            at += length
    output.finish()
    print(f"{options.out}: complete, {sum(state.shard_tokens)} tokens of {8 * own_worker.token_bytes} bits")


def main(arguments=None):
    options = parse(arguments)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes already run in parallel
    try:
        prepare(options)
    except (UsageError, MissingPackage) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (InputError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
