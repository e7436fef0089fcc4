"""What notebooks show: a figure as a picture with its caption, a comparison as a table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.errors import StoreError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from orchestrator.analysis.compare.comparing import Comparison
    from orchestrator.analysis.compare.regression import PointChange


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A figure of matplotlib with its title, and a caption that says how to read it."""

    title: str
    caption: str
    figure: Figure

    def save(self, path: str | Path) -> Path:
        """Write it in the format that the name ends in: .svg, .pdf, .png."""
        from orchestrator.report import style

        try:
            with style.look():
                self.figure.savefig(path)
        except (OSError, ValueError) as error:
            raise StoreError(f"{path}: cannot be written: {error}") from None
        return Path(path)

    def _repr_png_(self) -> bytes:
        """The picture that a notebook shows."""
        import io

        from orchestrator.report import style

        with style.look(), io.BytesIO() as file:
            self.figure.savefig(file, format="png", dpi=120)
            return file.getvalue()


class Compared:
    """What a comparison found, point by point: worse, better, same, or cannot tell."""

    def __init__(self, found: Comparison) -> None:
        self.found = found

    @property
    def points(self) -> tuple[PointChange, ...]:
        """Every point that both sides measured, with ratio, interval, p-values and verdict."""
        return self.found.changes

    def of(self, verdict: str) -> list[PointChange]:
        """The points with this verdict, such as "worse"."""
        return self.found.of(verdict)

    def frame(self) -> pd.DataFrame:
        """A row a point as a DataFrame of pandas, which has to be installed."""
        import pandas as pd

        from orchestrator.report import comparison_texts

        table: pd.DataFrame = pd.DataFrame(comparison_texts.data(self.found)["points"])
        return table

    def page(self, output: str | Path) -> Path:
        """Write an HTML page with the history of every point."""
        from orchestrator.report import compare_page

        return compare_page.render(self.found, Path(output))

    def __str__(self) -> str:
        """What `orch compare` prints."""
        from orchestrator.report import comparison_texts

        return comparison_texts.text(self.found)

    def _repr_markdown_(self) -> str:
        """The table that a notebook shows."""
        from orchestrator.report import comparison_texts

        return comparison_texts.markdown(self.found)
