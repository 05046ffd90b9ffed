"""ImageNet's official archives as folders train/WNID/*.JPEG and val/WNID/*.JPEG.

ILSVRC2012_img_train.tar contains one tar file per class, WNID.tar. ILSVRC2012_img_val.tar holds the images without their
classes. The classes are the lines of ILSVRC2012_validation_ground_truth.txt in the development kit, as numbers
(ILSVRC2012_ID); the kit's meta.mat maps them to WNIDs.
"""

import io
import pathlib
import re
import shutil
import tarfile

from fetching.archives import Archive, FetchError, say
from fetching.matlab import read_mat

KIT = "ILSVRC2012_devkit_t12/data"
GROUND_TRUTH = f"{KIT}/ILSVRC2012_validation_ground_truth.txt"
META = f"{KIT}/meta.mat"

# Sizes and SHA-256: TensorFlow Datasets (imagenet2012.txt) and, for the development kit, torchvision's prototype data sets.
TRAIN = Archive(
    "ILSVRC2012_img_train.tar", 147897477120, "b08200a27a8e34218a0e58fde36b0fe8f73bc377f4acea2d91602057c3ca45bb"
)
VAL = Archive(
    "ILSVRC2012_img_val.tar", 6744924160, "c7e06a6c0baccf06d8dbeb6577d71efff84673a5dbdd50633ab44f8ea0456ae0"
)
DEVELOPMENT_KIT = Archive(
    "ILSVRC2012_devkit_t12.tar.gz", None, "b59243268c0d266621fd587d2018f69e906fb22875aca0e295b48cafaa927953"
)
ARCHIVES = [TRAIN, VAL, DEVELOPMENT_KIT]

# --- the development kit ------------------------------------------------------------------------------------


def wnids_of(meta: bytes) -> dict[int, str]:
    """WNID by ILSVRC2012_ID of the classes, which are the synsets without children."""
    synsets = read_mat(io.BytesIO(meta), META)["synsets"].ravel()
    return {s["ILSVRC2012_ID"].item(): s["WNID"].item() for s in synsets if s["num_children"].item() == 0}


def read_kit(kit: pathlib.Path) -> list[str]:
    """WNIDs of the validation images in numerical order."""
    try:
        with tarfile.open(kit) as tar:
            truth = tar.extractfile(GROUND_TRUTH).read().decode().split()
            wnids = wnids_of(tar.extractfile(META).read())
        return [wnids[int(number)] for number in truth]
    except (tarfile.TarError, OSError, EOFError, KeyError, ValueError, FetchError) as error:
        raise FetchError(f"{kit}: {GROUND_TRUTH} and {META} cannot be read: {error!r}.") from error


# --- the images ---------------------------------------------------------------------------------------------


def write_member(tar: tarfile.TarFile, member: tarfile.TarInfo, path: pathlib.Path) -> None:
    with open(path, "wb") as out:
        shutil.copyfileobj(tar.extractfile(member), out, 1 << 20)


def unpack_class(tar: tarfile.TarFile, folder: pathlib.Path) -> None:
    """The images of an inner tar file. The folder gets its name when it is complete."""
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for member in tar:
        if not member.isfile() or not re.fullmatch(r"[\w-]+\.JPEG", member.name):
            raise FetchError(f"{member.name!r} is in it, expected images NAME.JPEG")
        write_member(tar, member, part / member.name)
    part.rename(folder)


def unpack_train(archive: pathlib.Path, dest: pathlib.Path) -> int:
    """train/WNID/*.JPEG. Existing classes are kept."""
    classes = 0
    with tarfile.open(archive) as tar:
        for member in tar:
            name = re.fullmatch(r"(n\d{8})\.tar", member.name)
            if not name or not member.isfile():
                raise FetchError(f"{archive}: {member.name!r} is in it, expected WNID.tar")
            classes += 1
            folder = dest / "train" / name[1]
            if folder.exists():
                continue
            try:
                with tarfile.open(fileobj=tar.extractfile(member)) as inner:
                    unpack_class(inner, folder)
            except (tarfile.TarError, FetchError) as error:
                raise FetchError(f"{archive}: {member.name}: {error}") from error
            say(f"train: {classes} classes, the last is {name[1]}")
    return classes


def unpack_val(archive: pathlib.Path, wnids: list[str], dest: pathlib.Path) -> None:
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
                raise FetchError(
                    f"{archive}: {member.name!r} is in it, expected ILSVRC2012_val_00000001.JPEG to "
                    f"ILSVRC2012_val_{len(wnids):08d}.JPEG"
                )
            write_member(tar, member, part / wnids[int(name[2]) - 1] / name[1])
    images = sum(1 for _ in part.glob("*/*.JPEG"))
    if images != len(wnids):
        raise FetchError(f"{archive}: {images} images, expected {len(wnids)}")
    part.rename(folder)


def unpack(train: pathlib.Path, val: pathlib.Path, kit: pathlib.Path, dest: pathlib.Path) -> None:
    """train/ and val/ below `dest`. Keeps what an earlier call completed."""
    wnids = read_kit(kit)
    try:
        unpack_val(val, wnids, dest)
        classes = unpack_train(train, dest)
    except tarfile.TarError as error:
        raise FetchError(f"an archive of {train.parent} is damaged: {error}.") from error
    if classes != len(set(wnids)):
        raise FetchError(f"{train}: {classes} classes, expected {len(set(wnids))}.")
