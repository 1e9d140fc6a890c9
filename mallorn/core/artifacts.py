"""Where things lie in the artifact store, as fsspec URLs."""

from hashlib import sha256


def model_uri(artifacts: str, model_id: str) -> str:
    """The bytes of an uploaded model, named by their SHA-256; owners who upload the same bytes share them."""
    return f"{artifacts.rstrip('/')}/models/{model_id}"


def export_uri(artifacts: str, job_id: str, target_key: str) -> str:
    """The directory of a job's exported logs: one directory per target."""
    return f"{artifacts.rstrip('/')}/exports/{job_id}/{target_key}"


def exports_beside(uri: str) -> str:
    """The directory of all exports of the job that one of them belongs to."""
    return uri.rpartition("/")[0]


def scripts_uri(artifacts: str, workload_key: str, trace: str) -> str:
    """A schedule in readable form, named by what it is: jobs that end with the same schedule share it."""
    return f"{artifacts.rstrip('/')}/scripts/{sha256(f'{workload_key}:{trace}'.encode()).hexdigest()}.json"
