from __future__ import annotations

import io
import json
import os
import pickle
import struct
import subprocess
import sys
import warnings
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from cimtool.base.errors import CimError
from cimtool.loading.checkpoint import (
    SMALL,
    natural,
    read_checkpoint,
    read_torch,
    single,
)
from cimtool.loading.pickles import STORAGE_BYTES
from tests.kits.public_checkpoints import VIT_B_16, matched, prolip


def test_tensors_and_plain_values_come_back_as_saved(tmp_path: Path) -> None:
    path = tmp_path / "m.pth"
    half = torch.tensor([1.5, -0.1], dtype=torch.bfloat16)
    torch.save(
        {"w": {"a": torch.ones(2, 3), "h": half}, "n": [1, None, "x"], 3: torch.arange(2)}, path
    )
    content = read_checkpoint(path).content
    assert content["w"]["a"].dtype == np.float32
    np.testing.assert_array_equal(content["w"]["h"], half.float().numpy())
    assert content["n"] == [1, None, "x"]
    assert content["3"].dtype == np.int64


def test_safetensors_come_in_natural_order(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_file({f"net.{n}.weight": torch.full((1,), float(n)) for n in (10, 9, 0)}, path)
    checkpoint = read_checkpoint(path)
    assert list(checkpoint.content) == ["net.0.weight", "net.9.weight", "net.10.weight"]
    assert not checkpoint.ordered
    assert natural("a.2") < natural("a.10") < natural("b.1")
    assert natural("a.09") == natural("a.9") < natural("a.\N{SUPERSCRIPT TWO}")
    assert natural("9" * 5000) < natural("1" + "0" * 5000)  # longer than Python reads


LARGE = SMALL + 1


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_large_arrays_in_half_precision_stay_so_until_they_are_used(
    tmp_path: Path, suffix: str, dtype: torch.dtype
) -> None:
    large = torch.linspace(-3, 3, LARGE).to(dtype)
    tensors = {"large": large, "small": large[:9].clone(), "bias": torch.ones(LARGE)}
    path = tmp_path / f"m{suffix}"
    save_file(tensors, path) if suffix == ".safetensors" else torch.save(tensors, path)
    content = read_checkpoint(path).content
    assert content["small"].dtype == content["bias"].dtype == np.float32
    assert str(content["large"].dtype) == str(dtype).removeprefix("torch.")
    np.testing.assert_array_equal(single(content["large"]), large.float().numpy())
    np.testing.assert_array_equal(content["bias"], np.ones(LARGE, np.float32))


@pytest.mark.parametrize("save", [save_file, torch.save], ids=["safetensors", "pt"])
@pytest.mark.parametrize("how", ["cut", "replaced", "removed"])
def test_a_file_that_changes_after_it_was_opened_is_refused(
    tmp_path: Path, how: str, save: Callable[..., None]
) -> None:
    path = tmp_path / ("m.safetensors" if save is save_file else "m.pt")
    save({"large": torch.ones(8 * LARGE), "small": torch.ones(3)}, path)
    content = read_checkpoint(path).content
    if how == "cut":
        os.truncate(path, path.stat().st_size // 4)
    elif how == "replaced":
        save({"large": torch.zeros(8 * LARGE), "small": torch.ones(3)}, tmp_path / "n")
        (tmp_path / "n").replace(path)
    else:
        path.unlink()
    said = "there is no such file" if how == "removed" else "was changed while it was read"
    with pytest.raises(CimError, match=rf"^{path}: {said}$"):
        single(content["large"])
    np.testing.assert_array_equal(content["small"], np.ones(3, np.float32))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's peak of memory")
@pytest.mark.thorough("a checkpoint of 790 MB in three forms")
@pytest.mark.parametrize("form", ["safetensors", "pt", "half.safetensors"])
def test_encoders_that_nothing_reads_take_no_memory(tmp_path: Path, form: str) -> None:
    tensors = prolip(VIT_B_16, matched(VIT_B_16, 2))
    path = tmp_path / f"vit.{form}"
    if form == "pt":
        torch.save({"state_dict": tensors}, path)
    else:
        kept = torch.float16 if "half" in form else torch.float32
        save_file({name: one.to(kept) for name, one in tensors.items()}, path)
    least, most = (300, 400) if "half" in form else (700, 800)
    assert least < path.stat().st_size / 1e6 < most
    code = (
        "import re, sys; from pathlib import Path; from cimtool.loading.source import ModelSource; "
        "ModelSource(sys.argv[1], widths=(1536, 1536)).load(); "
        "print(re.search(r'VmHWM:\\s*(\\d+) kB', Path('/proc/self/status').read_text())[1])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    assert int(ran.stdout) * 1024 < 0.6 * 1e9


class Attack:
    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("how", ["zip", "legacy", "plain"])
def test_code_in_a_pickle_is_named_and_never_run(tmp_path: Path, how: str) -> None:
    path, marker = tmp_path / "m.pth", tmp_path / "marker"
    content = {"a": Attack(marker)}
    if how == "plain":
        path.write_bytes(pickle.dumps(content, protocol=2))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=how == "zip")
    with pytest.raises(CimError, match=r"m\.pth: holds Python code \((posix|os|nt)\.system\)"):
        read_checkpoint(path)
    assert not marker.exists()


def test_a_whole_module_is_refused_with_what_to_do(tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(2, 2), tmp_path / "m.pth")
    with pytest.raises(CimError, match=r"Linear.*save the state_dict, not the module"):
        read_checkpoint(tmp_path / "m.pth")


def test_networks_with_code_are_refused_with_what_works(tmp_path: Path) -> None:
    module, path = torch.nn.Linear(3, 2).eval(), tmp_path / "m.pth"
    torch.jit.script(module).save(path)
    works = r"; expected its numbers, .*state_dict.*, or both projectors as ONNX"
    with pytest.raises(CimError, match=r"m\.pth: is a TorchScript module .*" + works):
        read_checkpoint(path)
    exported = torch.export.export(module, (torch.zeros(2, 3),))
    torch.export.save(exported, tmp_path / "m.pt2")
    (tmp_path / "m.pt").write_bytes((tmp_path / "m.pt2").read_bytes())
    for name in ("m.pt2", "m.pt"):
        with pytest.raises(CimError, match=rf"{name}: is a program of torch\.export" + works):
            read_checkpoint(tmp_path / name)


def test_a_tensor_without_numbers_is_said_to_have_none(tmp_path: Path) -> None:
    huge = torch.empty(10**6, 10**6, device="meta")
    torch.save({"text": {"w": huge}}, tmp_path / "m.pth")
    with pytest.raises(CimError, match=r"text\.w is on the meta device, .* shape but no numbers"):
        read_checkpoint(tmp_path / "m.pth")


def test_numpy_values_are_refused_with_what_to_do(tmp_path: Path) -> None:
    torch.save({"coeff": np.ones(3)}, tmp_path / "m.pt")
    with pytest.raises(CimError, match=r"NumPy value \(numpy.*save it as a tensor"):
        read_checkpoint(tmp_path / "m.pt")


@pytest.mark.parametrize("zipped", [True, False])
def test_every_truncation_is_one_sentence(tmp_path: Path, zipped: bool) -> None:
    buffer = io.BytesIO()
    torch.save({"a": torch.ones(40, 3)}, buffer, _use_new_zipfile_serialization=zipped)
    whole, path = buffer.getvalue(), tmp_path / "m.pth"
    # The old format has no container: cut within a name, what is left is another, unknown name.
    message = "is truncated, corrupt" if zipped else "is truncated, corrupt|holds Python code"
    for size in {0, 1, 2, 3, 10, len(whole) - 1, *range(20, len(whole), 37)}:
        path.write_bytes(whole[:size])
        with pytest.raises(CimError, match=rf"m\.pth: ({message})"):
            read_checkpoint(path)


def test_truncated_safetensors(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_file({"a": torch.ones(40, 3)}, path)
    whole = path.read_bytes()
    for size in range(0, len(whole), 23):
        path.write_bytes(whole[:size])
        with pytest.raises(CimError, match="truncated, corrupt"):
            read_checkpoint(path)


@pytest.mark.parametrize("extent", [1 << 62, 1 << 60, (1 << 64) - 1])
def test_an_empty_tensor_whose_shape_no_array_has_is_refused(extent: int, tmp_path: Path) -> None:
    file = tmp_path / "m.safetensors"
    expected = rf"a has shape \[0, {extent}\], which no array can have"
    header = json.dumps({"a": {"dtype": "F8_E5M2", "shape": [0, extent], "data_offsets": [0, 0]}})
    file.write_bytes(struct.pack("<Q", len(header)) + header.encode())
    with pytest.raises(CimError, match=expected):
        read_checkpoint(file)
    if extent < 1 << 63:
        file = tmp_path / "m.pth"
        torch.save({"a": torch.empty(0, extent, dtype=torch.float16)}, file)
        with pytest.raises(CimError, match=expected):
            read_checkpoint(file)


def test_more_axes_than_an_array_has_are_refused(tmp_path: Path) -> None:
    header = b'{"a":{"dtype":"F32","shape":[' + b"0," * 99 + b'0],"data_offsets":[0,0]}}'
    file = tmp_path / "m.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(CimError, match="a has 100 axes; expected at most 64"):
        read_checkpoint(file)


def test_what_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CimError, match=r"no\.pth: there is no such file"):
        read_checkpoint(tmp_path / "no.pth")
    for name in ("nothing", "no.onnx", "no.bin"):
        with pytest.raises(CimError, match=f"{name}: there is no such file"):
            read_checkpoint(tmp_path / name)
    (tmp_path / "bundle").mkdir()
    with pytest.raises(CimError, match="bundle: is a folder; expected a file"):
        read_checkpoint(tmp_path / "bundle")
    (tmp_path / "m.w").touch()
    with pytest.raises(CimError, match=r'"\.w" is not the suffix of a checkpoint: \.pth, \.pt'):
        read_checkpoint(tmp_path / "m.w")
    (tmp_path / "d.pt").mkdir()
    with pytest.raises(CimError, match="is a folder"):
        read_checkpoint(tmp_path / "d.pt")
    torch.save(torch.ones(2), tmp_path / "t.pt")
    with pytest.raises(CimError, match=r"holds one tensor of shape \[2\]; expected a dictionary"):
        read_checkpoint(tmp_path / "t.pt")
    torch.save([1], tmp_path / "t.pt")
    with pytest.raises(CimError, match="holds a list"):
        read_checkpoint(tmp_path / "t.pt")
    torch.save({"a": {"z": torch.ones(2, dtype=torch.complex64)}}, tmp_path / "t.pt")
    with pytest.raises(CimError, match=r"a\.z is a tensor of torch.complex64"):
        read_torch(tmp_path / "t.pt")


def doubled() -> list[object]:
    value: list[object] = [1.0]
    for _ in range(40):
        value = [value, value]
    return value


def within_itself() -> list[object]:
    value: list[object] = []
    value.append(value)
    return value


HOSTILE = {
    "a list of itself twice, 40 deep": (doubled, "unfolds to more than 200,000 values"),
    "a list in itself": (within_itself, "nests containers more than 64 deep"),
    "a row shown a thousand million times": (
        lambda: torch.zeros(1).expand(10**9),
        "a needs 8,000,000,000 bytes of memory",
    ),
    "an integer of 2,000 bits": (lambda: 1 << 1999, "a is an integer of 2000 bits"),
    "a key that is no text": (lambda: {(1, 2): 3}, "a has a key that is a tuple; expected texts"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_would_take_all_memory_is_refused(name: str, tmp_path: Path) -> None:
    make, said = HOSTILE[name]
    torch.save({"a": make()}, tmp_path / "x.pth")
    assert (tmp_path / "x.pth").stat().st_size < 5000
    with pytest.raises(CimError, match=said):
        read_checkpoint(tmp_path / "x.pth")


def test_compressed_members_are_refused(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(1000)}, tmp_path / "x.pth")
    with (
        zipfile.ZipFile(tmp_path / "x.pth") as plain,
        zipfile.ZipFile(tmp_path / "y.pth", "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for member in plain.infolist():
            archive.writestr(member.filename, plain.read(member))
    with pytest.raises(CimError, match=r"data\.pkl is compressed; expected members as torch\.save"):
        read_checkpoint(tmp_path / "y.pth")


def test_old_files_are_read_without_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "x.pth"
    torch.save({"a": torch.arange(3)}, file, _use_new_zipfile_serialization=False)
    with warnings.catch_warnings(action="error"):
        found = read_checkpoint(file).content
    np.testing.assert_array_equal(found["a"], [0, 1, 2])


def nested_key(depth: int) -> bytes:
    """A pickle of a dictionary whose key is a tuple of itself twice, so many deep."""
    made = pickle.PROTO + b"\x02" + pickle.EMPTY_DICT + pickle.EMPTY_TUPLE + pickle.BINPUT + b"\0"
    for place in range(depth):
        twice = pickle.BINGET + bytes([place]) + pickle.TUPLE2
        made += twice + pickle.BINPUT + bytes([place + 1])
    return made + pickle.BININT1 + b"\1" + pickle.SETITEM + pickle.STOP


def archived(pickled: bytes | None = None, name: str = "data.pkl") -> bytes:
    """An archive of torch.save with a pickle in place of its own, in a member of this name."""
    buffer, made = io.BytesIO(), io.BytesIO()
    torch.save({"a": torch.ones(1)}, buffer)
    with zipfile.ZipFile(buffer) as plain, zipfile.ZipFile(made, "w") as archive:
        for member in plain.infolist():
            held, called = plain.read(member), member.filename
            if called.endswith("data.pkl"):
                held, called = pickled or held, called.replace("data.pkl", name)
            archive.writestr(called, held)
    return made.getvalue()


@pytest.mark.parametrize("zipped", [True, False])
def test_a_key_whose_hash_would_never_end_is_refused(zipped: bool, tmp_path: Path) -> None:
    file = tmp_path / "x.pth"
    file.write_bytes(archived(nested_key(40)) if zipped else nested_key(40))
    with pytest.raises(CimError, match="nests tuples more than 8 deep; expected tensors"):
        read_checkpoint(file)


@pytest.mark.parametrize("opcode", [pickle.BYTEARRAY8, pickle.BINUNICODE8, pickle.BINBYTES8])
def test_a_length_beyond_the_file_is_not_allocated(opcode: bytes, tmp_path: Path) -> None:
    file = tmp_path / "x.pth"
    file.write_bytes(pickle.PROTO + b"\x05" + opcode + (1 << 60).to_bytes(8, "little") + b"abc")
    with pytest.raises(CimError, match="is truncated, corrupt, or not a file that torch"):
        read_checkpoint(file)


def text(value: str) -> bytes:
    return pickle.BINUNICODE + len(value).to_bytes(4, "little") + value.encode()


def integer(value: int) -> bytes:
    return pickle.LONG1 + b"\x09" + value.to_bytes(9, "little")


def call(name: str, *operands: bytes) -> bytes:
    function = pickle.GLOBAL + name.replace(" ", "\n").encode() + b"\n"
    return function + pickle.MARK + b"".join(operands) + pickle.TUPLE + pickle.REDUCE


def numbers(count: int, key: str) -> bytes:
    storage = text("storage") + b"ctorch\nFloatStorage\n" + text(key) + text("cpu")
    return pickle.MARK + storage + integer(count) + pickle.TUPLE + pickle.BINPERSID


def ones(count: int) -> bytes:
    return pickle.EMPTY_LIST + pickle.MARK + (pickle.BININT1 + b"\1") * count + pickle.APPENDS


def each(*values: bytes) -> bytes:
    return pickle.EMPTY_LIST + pickle.MARK + b"".join(values) + pickle.APPENDS


def put(place: int, value: bytes) -> bytes:
    return value + pickle.BINPUT + bytes([place])


def table(*values: bytes) -> bytes:
    return pickle.EMPTY_DICT + pickle.MARK + b"".join(values) + pickle.SETITEMS


GB = 1 << 30
AGAIN = pickle.BINGET + b"\1"
ONE = pickle.BININT1 + b"\1"
COLLIDING = [(1 << 61) - 1 + k * ((1 << 61) - 1) for k in range(4, 500)]

CALLED = {
    "bytes of a number": (call("__builtin__ bytearray", integer(4 * GB)), r"\(__builtin__.bytearr"),
    "bytes, by another name": (call("builtins bytes", integer(4 * GB)), r"\(builtins.bytes\)"),
    "frozen sets": (call("builtins frozenset", each()), r"\(builtins.frozenset\)"),
    "a tensor of a size": (call("torch FloatTensor", integer(4 * GB)), r"\(torch.FloatTensor\)"),
    "a storage of a size": (
        call("torch.storage UntypedStorage", integer(4 * GB)),
        r"\(torch.storage.UntypedStorage\)",
    ),
    "a code that doubles": (
        call("_codecs encode", text("a"), text("hex")),
        "calls _codecs.encode of text, text; expected tensors, numbers, texts, lists and dict",
    ),
    "a code of a code": (
        call("_codecs encode", call("_codecs encode", text("a"), text("latin1")), text("latin1")),
        "calls _codecs.encode of _codecs.encode, text",
    ),
    "a size of bytes": (
        call("torch Size", call("_codecs encode", text("a" * 99), text("latin1"))),
        "calls torch.Size of _codecs.encode",
    ),
    "letters that are counted": (call("collections Counter", text("a")), "Counter of text"),
    "a call within a call": (
        call(
            "torch._tensor _rebuild_from_type_v2",
            *(b"ccollections\nOrderedDict\n", b"ctorch\nTensor\n"),
            *(pickle.EMPTY_TUPLE, pickle.NONE),
        ),
        "calls torch._tensor._rebuild_from_type_v2 of no tensor",
    ),
    "a list that is copied again and again": (
        each(
            put(1, ones(30_000)),
            *[call("torch Size", AGAIN)] * 100,
        ),
        "takes more than 2,097,152 operations",
    ),
    "a text that is copied again and again": (
        each(put(1, text("a" * 6_400_000)), *[call("_codecs encode", AGAIN, text("latin1"))] * 30),
        "takes more than 2,097,152 operations",
    ),
    "a list of itself, given away": (
        call("builtins set", put(1, pickle.EMPTY_LIST) + pickle.MARK + AGAIN * 9 + pickle.APPENDS),
        "takes more than 2,097,152|has more than 256 keys",
    ),
    "keys of one hash": (
        table(*(integer(value) + ONE for value in COLLIDING)),
        "has more than 256 keys that are not texts",
    ),
    "a set of one hash": (
        call("builtins set", each(*map(integer, COLLIDING))),
        "has more than 256 keys that are not texts",
    ),
    "the state of a storage": (
        numbers(1, "0") + pickle.EMPTY_DICT + pickle.BUILD,
        "sets the state of a storage",
    ),
    "one member under many names": (numbers(1, "a"), "keeps numbers under 'a'"),
    "more numbers than bytes": (
        numbers(GB, "0"),
        "takes 4,294,967,296 bytes, (its record|the file) has ",
    ),
}


@pytest.mark.parametrize("name", CALLED)
@pytest.mark.parametrize("zipped", [True, False])
def test_calls_that_make_memory_of_little_are_refused(
    name: str, zipped: bool, tmp_path: Path
) -> None:
    made, said = CALLED[name]
    pickled = pickle.PROTO + b"\2" + table(text("k") + made) + pickle.STOP
    file = tmp_path / "x.pth"
    file.write_bytes(archived(pickled) if zipped else pickled)
    with pytest.raises(CimError, match=said):
        read_checkpoint(file)


def test_a_pickle_is_looked_at_under_any_name_by_which_torch_finds_it(tmp_path: Path) -> None:
    file = tmp_path / "x.pth"
    file.write_bytes(archived(nested_key(40), "DATA.pkl"))
    with pytest.raises(CimError, match="nests tuples more than 8 deep"):
        read_checkpoint(file)


def saved_with(count: int, kind: str, zipped: bool) -> bytes:
    """A file of two tensors of three numbers, whose pickle says so many of this kind of one."""
    buffer = io.BytesIO()
    held = {"a": torch.ones(3), "b": torch.zeros(3, dtype=torch.int64)}
    torch.save(held, buffer, _use_new_zipfile_serialization=zipped)
    three, many = b"cpu", pickle.BININT + count.to_bytes(4, "little")

    def forged(pickled: bytes) -> bytes:
        at = pickled.index(pickle.BININT1 + b"\3", pickled.index(three))
        pickled = pickled[:at] + many + pickled[at + 2 :]
        return pickled.replace(b"FloatStorage", f"{kind}Storage".encode())

    if not zipped:
        return forged(buffer.getvalue())
    with zipfile.ZipFile(buffer) as plain:
        return archived(forged(plain.read("archive/data.pkl")))


@pytest.mark.parametrize(
    ("count", "kind", "size"), [(4, "Float", 16), (1000, "Float", 4000), (2, "Double", 16)]
)
def test_a_storage_that_says_more_than_its_record_holds_is_refused(
    count: int, kind: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before torch sees it: an older one takes the numbers from memory behind the record."""
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("it came to torch"))
    file = tmp_path / "x.pth"
    file.write_bytes(saved_with(count, kind, zipped=True))
    said = rf"storage 0 of its tensors takes {size:,} bytes, its record has 4"
    with pytest.raises(CimError, match=said):
        read_checkpoint(file)


def test_an_empty_storage_that_is_named_again_is_compared_again(tmp_path: Path) -> None:
    file, buffer = tmp_path / "x.pth", io.BytesIO()
    empty = torch.empty(0)
    torch.save({"a": empty, "b": empty}, buffer)
    with zipfile.ZipFile(buffer) as plain:
        pickled = plain.read("archive/data.pkl")
    second = pickled.rindex(b"Q")
    at = pickled.rindex(pickle.BININT1 + b"\0", 0, second)
    many = pickle.BININT + (1 << 24).to_bytes(4, "little")
    file.write_bytes(archived(pickled[:at] + many + pickled[at + 2 :]))
    with pytest.raises(CimError, match="takes 67,108,864 bytes, its record has "):
        read_checkpoint(file)


def test_the_storages_of_an_old_file_are_compared_with_it_in_bytes(tmp_path: Path) -> None:
    file = tmp_path / "x.pth"
    content = saved_with(300, "Double", zipped=False)
    assert 300 < len(content) < 2400
    file.write_bytes(content)
    with pytest.raises(CimError, match=r"what its tensors store takes 2,4.. bytes, the file has "):
        read_checkpoint(file)


def test_the_bytes_of_each_storage_of_torch_are_known() -> None:
    for storage in torch._storage_classes:  # type: ignore[attr-defined]
        name = storage.__name__.removesuffix("Storage")
        if name not in ("Typed", "Untyped"):
            dtype = torch.storage._get_dtype_from_pickle_storage_type(f"{name}Storage")
            assert STORAGE_BYTES[name] == dtype.itemsize


def test_names_of_storages_of_an_old_file_are_looked_at(tmp_path: Path) -> None:
    file = tmp_path / "x.pth"
    torch.save({"a": 1}, file, _use_new_zipfile_serialization=False)
    whole, names = file.read_bytes(), pickle.dumps([], 2)
    assert whole.endswith(names)
    file.write_bytes(whole.removesuffix(names) + nested_key(40))
    with pytest.raises(CimError, match="nests tuples more than 8 deep"):
        read_checkpoint(file)


def test_numbers_that_an_old_file_does_not_hold_are_not_made_up(tmp_path: Path) -> None:
    file = tmp_path / "x.pth"
    torch.save({"a": torch.ones(1)}, file, _use_new_zipfile_serialization=False)
    whole = file.read_bytes()
    file.write_bytes(whole[: whole.rindex(pickle.PROTO + b"\2")] + pickle.dumps([], 2))
    with pytest.raises(CimError, match="lacks the numbers of 1 of its tensors"):
        read_checkpoint(file)


@pytest.mark.parametrize("name", ["numel", "detach", "to"])
def test_attributes_do_not_take_the_place_of_functions(name: str, tmp_path: Path) -> None:
    tensor = torch.ones(1)
    tensor.note = 1  # type: ignore[attr-defined]
    torch.save({"a": tensor}, tmp_path / "plain.pth")
    with zipfile.ZipFile(tmp_path / "plain.pth") as plain:
        pickled = plain.read("plain/data.pkl").replace(text("note"), text(name))
    (tmp_path / "x.pth").write_bytes(archived(pickled))
    np.testing.assert_array_equal(read_checkpoint(tmp_path / "x.pth").content["a"], [1])


def test_plain_values_of_trainings_are_read(tmp_path: Path) -> None:
    """Counters of schedulers, ordered dictionaries as Python 2 wrote them, bytes, sets, sizes."""
    weight = torch.nn.Parameter(torch.ones(2))
    weight.note = "x"  # type: ignore[attr-defined]
    values = {
        "milestones": Counter({3: 1}),
        "size": torch.Size([2, 3]),
        "others": [
            {1, 2},
            b"ab",
            1j,
            torch.float16,
            torch.device("cpu"),
            torch.ones(3).untyped_storage(),
        ],
        "state": OrderedDict(w=weight),
    }
    values["state"]._metadata = {"": {"version": 1}}
    torch.save(values, tmp_path / "x.pth")
    found = read_checkpoint(tmp_path / "x.pth").content
    assert (found["milestones"], found["size"]) == ({"3": 1}, [2, 3])
    others = ["set", "bytes", "1j", "torch.float16", "cpu", "TypedStorage"]
    assert [str(one) for one in found["others"]] == others
    np.testing.assert_array_equal(found["state"]["w"], [1, 1])
    pair = each(text("w") + pickle.BININT1 + b"\7")
    old = pickle.PROTO + b"\2" + call("collections OrderedDict", each(pair)) + pickle.STOP
    (tmp_path / "y.pth").write_bytes(archived(old))
    assert read_checkpoint(tmp_path / "y.pth").content == {"w": 7}


def test_an_archive_with_two_directories_is_refused(tmp_path: Path) -> None:
    whole = archived()
    place = whole.rindex(b"PK\5\6")
    start = int.from_bytes(whole[place + 16 : place + 20], "little")
    file, said = tmp_path / "x.pth", "its directory is not where its end record says"
    twice = whole[:place] + whole[start:]  # Python reads the second directory, torch the first
    for made in (twice, whole[:-2] + b"\1\0a"):
        file.write_bytes(made)
        with pytest.raises(CimError, match=said):
            read_checkpoint(file)
