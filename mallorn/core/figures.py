"""Figures as everybody words them."""


def percent(share: float, digits: int = 0) -> str:
    """`0.938` as `94 %`."""
    return f"{share * 100:.{digits}f} %"
