"""``python -m etrt.cli``."""

from etrt.cli import app

app()
