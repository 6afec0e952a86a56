def demo_command() -> None:
    """x"""
