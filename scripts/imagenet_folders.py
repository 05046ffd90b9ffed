"""ImageNet's official archives as folders train/WNID/*.JPEG and val/WNID/*.JPEG, for scripts/fetch_data.

ILSVRC2012_img_train.tar contains one tar file per class, WNID.tar. ILSVRC2012_img_val.tar holds the images without their
classes. The classes are the lines of ILSVRC2012_validation_ground_truth.txt in the development kit, as numbers
(ILSVRC2012_ID); the kit's meta.mat maps them to WNIDs. Needs only the standard library.
"""

import pathlib
import re
import shutil
import struct
import tarfile
import zlib

KIT = "ILSVRC2012_devkit_t12/data"
GROUND_TRUTH = f"{KIT}/ILSVRC2012_validation_ground_truth.txt"
META = f"{KIT}/meta.mat"


class ArchiveError(Exception):
    """An error in an archive, with its name."""


# --- MATLAB's MAT-file, version 5 ---------------------------------------------------------------------------
# "MAT-File Format" (MathWorks): a header of 128 bytes, then elements of a type, a size and data padded to 8 bytes.

NUMBERS = {1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I", 7: "f", 9: "d", 12: "q", 13: "Q"}
UTF8, MATRIX, COMPRESSED = 16, 14, 15
CELL_CLASS, STRUCT_CLASS, CHAR_CLASS = 1, 2, 4


def elements(data):
    """(type, data) of consecutive elements."""
    at = 0
    while at < len(data):
        kind, size = struct.unpack_from("<II", data, at)
        if kind >> 16:  # up to 4 bytes, within the tag
            yield kind & 0xFFFF, data[at + 4 : at + 4 + (kind >> 16)]
            at += 8
            continue
        if at + 8 + size > len(data):
            raise ValueError("an element is cut off")
        yield kind, data[at + 8 : at + 8 + size]
        at += 8 + size if kind == COMPRESSED else 8 + (size + 7) // 8 * 8


def numbers(kind, data):
    code = NUMBERS[kind]
    return list(struct.unpack(f"<{len(data) // struct.calcsize(code)}{code}", data))


def matrix(data):
    """(name, value): a str, a list of numbers, a list of dicts for a struct array; None for a cell array, which is
    not needed."""
    if not data:
        return "", []
    parts = elements(data)
    matrix_class = numbers(*next(parts))[0] & 0xFF
    next(parts)  # dimensions
    name = bytes(next(parts)[1]).decode()
    if matrix_class == STRUCT_CLASS:
        length = numbers(*next(parts))[0]
        names = bytes(next(parts)[1])
        fields = [names[i : i + length].split(b"\0")[0].decode() for i in range(0, len(names), length)]
        values = [matrix(value)[1] for _, value in parts]
        return name, [dict(zip(fields, values[i : i + len(fields)])) for i in range(0, len(values), len(fields))]
    if matrix_class == CELL_CLASS:
        return name, None
    kind, values = next(parts)
    if matrix_class == CHAR_CLASS:
        return name, bytes(values).decode() if kind == UTF8 else "".join(map(chr, numbers(kind, values)))
    return name, numbers(kind, values)


def read_mat(data):
    """Variables of a MAT-file by name."""
    if data[124:128] != b"\x00\x01IM":
        raise ValueError("not a MAT-file of version 5 with little-endian numbers")
    variables = {}
    for kind, content in elements(data[128:]):
        if kind == COMPRESSED:
            kind, content = next(elements(zlib.decompress(content)))
        if kind == MATRIX:
            name, value = matrix(content)
            variables[name] = value
    return variables


# --- the development kit ------------------------------------------------------------------------------------


def wnids_of(meta):
    """WNID by ILSVRC2012_ID of the classes, which are the synsets without children."""
    synsets = read_mat(meta)["synsets"]
    return {int(s["ILSVRC2012_ID"][0]): s["WNID"] for s in synsets if s["num_children"][0] == 0}


def read_kit(kit):
    """WNIDs of the validation images in numerical order."""
    try:
        with tarfile.open(kit) as tar:
            truth = tar.extractfile(GROUND_TRUTH).read().decode().split()
            wnids = wnids_of(tar.extractfile(META).read())
        return [wnids[int(number)] for number in truth]
    except (tarfile.TarError, OSError, EOFError, KeyError, ValueError, struct.error, zlib.error) as error:
        raise ArchiveError(f"{kit}: {GROUND_TRUTH} and {META} cannot be read: {error!r}") from error


# --- the images ---------------------------------------------------------------------------------------------


def write_member(tar, member, path):
    with open(path, "wb") as out:
        shutil.copyfileobj(tar.extractfile(member), out, 1 << 20)


def unpack_class(tar, folder):
    """The images of an inner tar file. The folder gets its name when it is complete."""
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for member in tar:
        if not member.isfile() or not re.fullmatch(r"[\w-]+\.JPEG", member.name):
            raise ArchiveError(f"{member.name!r} is in it, expected images NAME.JPEG")
        write_member(tar, member, part / member.name)
    part.rename(folder)


def unpack_train(archive, dest, say):
    """train/WNID/*.JPEG. Existing classes are kept."""
    classes = 0
    with tarfile.open(archive) as tar:
        for member in tar:
            name = re.fullmatch(r"(n\d{8})\.tar", member.name)
            if not name or not member.isfile():
                raise ArchiveError(f"{archive}: {member.name!r} is in it, expected WNID.tar")
            classes += 1
            folder = dest / "train" / name[1]
            if folder.exists():
                continue
            try:
                with tarfile.open(fileobj=tar.extractfile(member)) as inner:
                    unpack_class(inner, folder)
            except (tarfile.TarError, ArchiveError) as error:
                raise ArchiveError(f"{archive}: {member.name}: {error}") from error
            say(f"train: {classes} classes, the last is {name[1]}")
    return classes


def unpack_val(archive, wnids, dest):
    """val/WNID/*.JPEG. The folder val gets its name when it is complete."""
    folder, part = dest / "val", dest / "val.part"
    if folder.exists():
        return
    shutil.rmtree(part, ignore_errors=True)
    for wnid in set(wnids):
        (part / wnid).mkdir(parents=True)
    with tarfile.open(archive) as tar:
        for member in tar:
            name = re.fullmatch(r"(?:\./)?(ILSVRC2012_val_(\d{8})\.JPEG)", member.name)
            if not name or not member.isfile() or not 1 <= int(name[2]) <= len(wnids):
                raise ArchiveError(
                    f"{archive}: {member.name!r} is in it, expected ILSVRC2012_val_00000001.JPEG to "
                    f"ILSVRC2012_val_{len(wnids):08d}.JPEG"
                )
            write_member(tar, member, part / wnids[int(name[2]) - 1] / name[1])
    images = sum(1 for _ in part.glob("*/*.JPEG"))
    if images != len(wnids):
        raise ArchiveError(f"{archive}: {images} images, expected {len(wnids)}")
    part.rename(folder)


def unpack(train, val, kit, dest: pathlib.Path, say):
    """train/ and val/ below `dest`. Keeps what an earlier call completed. Raises ArchiveError."""
    wnids = read_kit(kit)
    try:
        unpack_val(val, wnids, dest)
        classes = unpack_train(train, dest, say)
    except tarfile.TarError as error:
        raise ArchiveError(f"an archive of {train.parent} is damaged: {error}") from error
    if classes != len(set(wnids)):
        raise ArchiveError(f"{train}: {classes} classes, expected {len(set(wnids))}")
