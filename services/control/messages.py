"""What planning, sweeping and reaping ask the caller to send, once their transaction is committed."""

Message = tuple[str, *tuple[object, ...]]  # a task's name and its arguments
