"""The link of a dashboard, which a notebook shows as the dashboard itself."""

from __future__ import annotations

HEIGHT_PX = 720


class DashboardLink(str):
    """The link as text; in the output of a notebook's cell, the page behind the link."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        from html import escape  # most links are never shown

        link = escape(self, quote=True)
        shown = escape(self.partition("?")[0])
        return (
            f'<p><a href="{link}" target="_blank" rel="noopener">{shown}</a></p>'
            f'<iframe src="{link}" title="scaler" '
            f'style="width: 100%; height: {HEIGHT_PX}px; border: 1px solid #8888"></iframe>'
        )


def widget(of: object, link: DashboardLink | None) -> str:
    """Return HTML for the output of a notebook's cell: what a cluster is, and its dashboard."""
    from html import escape  # as above

    about = f"<p><code>{escape(repr(of))}</code></p>"
    return about if link is None else about + link._repr_html_()
