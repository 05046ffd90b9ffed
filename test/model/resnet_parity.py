"""ResNet-18, WideResNet-18 and ResNet-50 against torchvision's."""

from subnetworks import EIGHT, FOUR, THREE, Parity, regimes


def sizes(name, stem, width, image_size, **more):
    return {"name": name, "stem": stem, "width": width, "image_size": image_size} | more


CIFAR = sizes("resnet18", "cifar", 8, 16)
OTHERS = {
    "imagenet": sizes("resnet18", "imagenet", 8, 32),
    "odd": sizes("resnet18", "imagenet", 8, 50),  # feature maps of width 25, 13, 7, 4 and 2
    "wide": sizes("wide_resnet18", "cifar", 8, 16, width_multiplier=2),
}


class ResNetParity(Parity):
    test_kept_activations = None  # test/cost/test_kept.cpp, to the byte
    test_bf16 = None  # BatchNorm over few values amplifies rounding


class TestResNet18(ResNetParity):
    full = {"resnet18": sizes("resnet18", "imagenet", 64, 64, num_classes=1000), "cifar": CIFAR} | OTHERS
    cases = [(CIFAR, regime) for regime in regimes(THREE, EIGHT, FOUR)]
    cases += [(other, regime) for other in OTHERS.values() for regime in regimes(THREE)]
    tiny = CIFAR


SMALL = {"cifar": sizes("resnet50", "cifar", 4, 16), "odd": sizes("resnet50", "imagenet", 4, 50)}


class TestResNet50(ResNetParity):
    full = {"resnet50": sizes("resnet50", "imagenet", 64, 64, num_classes=1000)} | SMALL
    full_precision = "fp64"  # its many norms of few values amplify rounding
    cases = [(SMALL["cifar"], regime) for regime in regimes(FOUR)]
    cases += [(SMALL["odd"], regime) for regime in regimes(THREE)]
    tiny = SMALL["cifar"]
