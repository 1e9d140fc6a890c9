"""Celery workers: import models, search, build and measure, train, finish."""
