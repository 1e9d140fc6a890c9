"""Where things lie in the artifact store, as fsspec URLs."""


def model_uri(artifacts: str, model_id: str) -> str:
    """The bytes of an uploaded model, named by their SHA-256; owners who upload the same bytes share them."""
    return f"{artifacts.rstrip('/')}/models/{model_id}"


def export_uri(artifacts: str, job_id: str, target_key: str) -> str:
    """The directory of a job's exported logs: one directory per target."""
    return f"{artifacts.rstrip('/')}/exports/{job_id}/{target_key}"
