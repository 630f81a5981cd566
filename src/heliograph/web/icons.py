"""SVG icons of the dashboard: outlines on a 24 by 24 grid, in the colour of the surrounding text."""

from markupsafe import Markup

# Icon name → the `d` attribute of one path, or complete SVG elements.
SHAPE_BY_NAME = {
    # navigation
    "home": "M4 11 12 4l8 7M6 9.5V20h12V9.5M10 20v-5.5h4V20",
    "messages": "M3.5 12.5h5l1.5 3h4l1.5-3h5M3.5 12.5 6 5h12l2.5 7.5V19h-17z",
    "verify": "M12 3.5 5 6v5.5c0 4.3 2.9 7.5 7 9 4.1-1.5 7-4.7 7-9V6zM9 12l2.2 2.2L15.2 10",
    "inbox": "M9.5 3.5h5M10.5 3.5v6L5 18.5c-.6 1 .1 2 1.2 2h11.6c1.1 0 1.8-1 1.2-2l-5.5-9v-6M8 15h8",
    "template": "M4 4h16v5H4zM4 13h7v7H4zM15 13h5M15 16.5h5M15 20h5",
    "domain": '<circle cx="12" cy="12" r="8.5"/><path d="M3.5 12h17M12 3.5c2.7 2.4 4 5.2 4 8.5s-1.3 6.1-4 8.5'
    'c-2.7-2.4-4-5.2-4-8.5s1.3-6.1 4-8.5"/>',
    "suppression": '<circle cx="12" cy="12" r="8.5"/><path d="M6 6l12 12"/>',
    "received": "M12 3.5v9M8 9l4 4 4-4M3.5 13h4l1.5 3h6l1.5-3h4v6.5h-17z",
    "unsubscribe": "M20 11V5.5H4v13h9M4 7.5l8 5.5 8-5.5M15.5 15.5l5 5M20.5 15.5l-5 5",
    "opt_out": "M4 5h16v11h-8.5L7 20v-4H4zM9.5 8l5 5M14.5 8l-5 5",
    "health": "M3 12.5h4.5l2-6 4 12 2.5-6H21",
    "key": '<circle cx="8" cy="15.5" r="4"/><path d="M11 12.5 19.5 4M16 7.5l3 3M13.5 10l2 2"/>',
    "webhook": '<circle cx="12" cy="6.5" r="2.5"/><circle cx="6" cy="17" r="2.5"/><circle cx="18" cy="17" r="2.5"/>'
    '<path d="m10.7 8.7-3.5 6.1M8.5 17h7M13.3 8.7l3.5 6.1"/>',
    "event": "M13 3 5.5 13.5H12L11 21l7.5-10.5H12z",
    "log": "M8.5 6h11M8.5 12h11M8.5 18h11M4.5 6h.01M4.5 12h.01M4.5 18h.01",
    "start": "M5 7l5 5-5 5M12.5 17.5H19",
    "billing": '<rect x="3.5" y="5.5" width="17" height="13" rx="2"/><path d="M3.5 10h17M7 14.5h3.5"/>',
    "settings": "M4 7h9M17 7h3M4 17h3M11 17h9M15 4.8v4.4M9 14.8v4.4",
    "people": '<circle cx="9" cy="8.5" r="3.5"/><path d="M3 19.5c.5-3.3 2.8-5.5 6-5.5s5.5 2.2 6 5.5'
    'M15.5 5.3a3.5 3.5 0 0 1 0 6.4M17.5 14.5c1.9.8 3.1 2.5 3.5 5"/>',
    "person": '<circle cx="12" cy="8" r="4"/><path d="M4.5 20c.7-3.8 3.6-6 7.5-6s6.8 2.2 7.5 6"/>',
    "audit": "M6 3.5h8.5L19 8v12.5H6zM14 3.5V8.5h5M9 12.5h7M9 16.5h7",
    "operator": "M4 4.5h16v6.5H4zM4 13h16v6.5H4zM7.5 7.75h.01M7.5 16.25h.01M11.5 7.75h5M11.5 16.25h5",
    "team": '<rect x="4" y="4" width="16" height="16" rx="3"/><path d="M8.5 15.5v-4M12 15.5v-7M15.5 15.5v-5.5"/>',
    "carrier": "M12 20.5V12M8.8 13.2a4.5 4.5 0 1 1 6.4 0M6.3 15.7a8 8 0 1 1 11.4 0M12 10h.01",
    "queue": "M4 5h16v4H4zM4 12h16M4 16h16M4 20h16",
    # actions
    "search": '<circle cx="11" cy="11" r="6.5"/><path d="m16 16 4.5 4.5"/>',
    "menu": "M4 7h16M4 12h16M4 17h16",
    "close": "M6 6l12 12M18 6 6 18",
    "copy": '<rect x="8.5" y="8.5" width="11.5" height="11.5" rx="2"/><path d="M15.5 8.5V6a2 2 0 0 0-2-2H6a2 2 0 0 0-2 '
    '2v7.5a2 2 0 0 0 2 2h2.5"/>',
    "external": "M13.5 4H20v6.5M20 4l-9 9M17.5 14v4.5a1.5 1.5 0 0 1-1.5 1.5H5.5A1.5 1.5 0 0 1 4 18.5V8a1.5 1.5 0 0 1 "
    "1.5-1.5H10",
    "more": "M5 12h.01M12 12h.01M19 12h.01",
    "plus": "M12 5v14M5 12h14",
    "download": "M12 4v11M7.5 11 12 15.5 16.5 11M4.5 20h15",
    "arrow": "M5 12h14M13.5 6.5 19 12l-5.5 5.5",
    "back": "M19 12H5M10.5 6.5 5 12l5.5 5.5",
    "down": "m7 10 5 5 5-5",
    "leave": "M14 4H6a1.5 1.5 0 0 0-1.5 1.5v13A1.5 1.5 0 0 0 6 20h8M10 12h10.5M17 8.5l3.5 3.5-3.5 3.5",
    "refresh": "M20 12a8 8 0 1 1-2.4-5.7L20 8.5M20 4v4.5h-4.5",
    "eye": '<circle cx="12" cy="12" r="3"/><path d="M2.5 12C4.5 8 8 5.5 12 5.5S19.5 8 21.5 12c-2 4-5.5 6.5-9.5 6.5S4.5 '
    '16 2.5 12z"/>',
    # states
    "check": "m5 12.5 4.5 4.5L19 7.5",
    "warning": "M12 4 2.8 20h18.4zM12 10v4.5M12 17.3v.01",
    "error": '<circle cx="12" cy="12" r="8.5"/><path d="m9 9 6 6M15 9l-6 6"/>',
    "info": '<circle cx="12" cy="12" r="8.5"/><path d="M12 11v5.5M12 7.7v.01"/>',
    "clock": '<circle cx="12" cy="12" r="8.5"/><path d="M12 7v5.5l3.5 2"/>',
    "pause": "M9 5.5v13M15 5.5v13",
    "dot": '<circle cx="12" cy="12" r="3.5"/>',
    # channels
    "email": '<rect x="3.5" y="5.5" width="17" height="13" rx="2"/><path d="m4 7.5 8 6 8-6"/>',
    "sms": "M4 5h16v11h-8.5L7 20v-4H4zM8.5 10.5h.01M12 10.5h.01M15.5 10.5h.01",
    "whatsapp": "M4 20l1.3-4A8.3 8.3 0 1 1 8.5 19zM9 8.7c0 3.3 2.8 6.3 6.2 6.5l1-1.8-2-1.2-1 .9c-1-.4-1.8-1.2-2.2-2.2"
    "l.9-1-1-2.1z",
}


SHEET_URL = "/dashboard/static/icons.svg"  # URL of the SVG file with all icons, which browsers cache
# icons always stand beside text, so screen readers skip them
ICON_BY_NAME = {
    name: Markup(f'<svg class="icon" aria-hidden="true"><use href="{SHEET_URL}#{name}"/></svg>')
    for name in SHAPE_BY_NAME
}


def render_sheet() -> bytes:
    """Return the SVG file with one symbol per icon."""
    symbols = (
        f'<symbol id="{name}" viewBox="0 0 24 24">{_to_svg(shape)}</symbol>' for name, shape in SHAPE_BY_NAME.items()
    )
    return f'<svg xmlns="http://www.w3.org/2000/svg">{"".join(symbols)}</svg>'.encode()


def _to_svg(shape: str) -> str:
    return shape if shape.startswith("<") else f'<path d="{shape}"/>'
