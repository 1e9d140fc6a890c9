"""Cost models that predict measured speed, their training and their evaluation."""

from mallorn.core.moved_modules import install

install()
