"""Architectures for images, videos and planes of numbers, of torchvision and timm, with random weights."""

from collections.abc import Callable

import timm
import torch
import torchvision
from networks import Network

SIDE = 224
CLASSIFIERS = (
    *("alexnet", "vgg11", "resnet18", "resnet50", "resnext50_32x4d", "wide_resnet50_2", "densenet121"),
    *("mobilenet_v2", "mobilenet_v3_large", "shufflenet_v2_x1_0", "squeezenet1_1", "mnasnet1_0"),
    *(
        "efficientnet_b0",
        "regnet_y_400mf",
        "regnet_x_800mf",
        "convnext_tiny",
        "vit_b_16",
        "swin_t",
        "maxvit_t",
    ),
)
SEGMENTERS = ("fcn_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large")
VIDEOS = ("r3d_18", "mc3_18", "s3d")
TIMM = (
    *("mixer_s16_224", "resmlp_12_224", "gmlp_s16_224", "deit_tiny_patch16_224", "levit_128s", "pit_ti_224"),
    *("poolformer_s12", "ghostnet_100", "hardcorenas_a", "hrnet_w18_small", "dla34", "res2net50_26w_4s"),
    *("repvgg_a0", "nf_resnet26", "xcit_tiny_12_p16_224", "efficientvit_b0", "mobilevit_s", "fastvit_t8"),
    *(
        "tiny_vit_5m_224",
        "edgenext_xx_small",
        "convmixer_768_32",
        "eca_nfnet_l0",
        "coat_tiny",
        "visformer_tiny",
    ),
)


def vision() -> dict[str, Callable[[], Network]]:
    """By name; each is made when it is asked for."""
    made: dict[str, Callable[[], Network]] = {}
    for name in CLASSIFIERS:
        made[f"tv-{name}"] = lambda name=name: _torchvision(name, _image())
    for name, side in {"googlenet": SIDE, "inception_v3": 299}.items():
        made[f"tv-{name}"] = lambda name=name, side=side: _torchvision(
            name, _image(side), init_weights=True, aux_logits=False
        )
    for name in SEGMENTERS:
        made[f"tv-{name}"] = lambda name=name: _segmenter(name)
    for name in VIDEOS:
        made[f"tv-{name}"] = lambda name=name: Network(
            torchvision.models.video.__dict__[name](weights=None), {"video": torch.randn(1, 3, 16, 112, 112)}
        )
    for name in TIMM:
        made[f"timm-{name}"] = lambda name=name: Network(timm.create_model(name), {"image": _image()})
    return made


def _image(side: int = SIDE) -> torch.Tensor:
    return torch.randn(1, 3, side, side)


def _torchvision(name: str, image: torch.Tensor, **options: object) -> Network:
    return Network(torchvision.models.get_model(name, weights=None, **options), {"image": image})


class _Planes(torch.nn.Module):
    """A segmenter's planes without the dictionary around them."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        planes: torch.Tensor = self.model(image)["out"]
        return planes


def _segmenter(name: str) -> Network:
    model = torchvision.models.get_model(name, weights=None, weights_backbone=None)
    return Network(_Planes(model), {"image": _image(256)})
