def doctor_command() -> None:
    """x"""
