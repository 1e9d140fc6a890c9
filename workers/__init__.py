"""Celery workers: import models, search, build and measure, train, finish."""

from mallorn.core.moved_modules import install

install()
