def inspect_command() -> None:
    """x"""
