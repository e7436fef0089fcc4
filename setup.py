"""What pyproject.toml cannot say: the man pages of a wheel are made of the parser when it is built."""

from __future__ import annotations

import sys
from pathlib import Path

from setuptools import setup  # first: it brings distutils

from distutils.command.install_data import install_data  # isort: skip


class InstallManPages(install_data):
    """Writes share/man/man1; the parser needs nothing but the standard library."""

    def run(self) -> None:
        super().run()
        sys.path.insert(0, str(Path(__file__).parent))
        from orchestrator.cli import manpages

        manpages.write(Path(self.install_dir, "share/man/man1"), self.distribution.get_version())


setup(cmdclass={"install_data": InstallManPages}, data_files=[("share/man/man1", [])])
