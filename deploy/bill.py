"""The bill of materials of an image: what is known of its Python packages, and the Debian packages of its base.

python3 deploy/bill.py heliograph-VERSION.cdx.json heliograph-VERSION.image.tar > heliograph-VERSION.image.cdx.json
"""

import json
import sys
import tarfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

STATUS = ("var/lib/dpkg/status", "./var/lib/dpkg/status")


def installed(image: Path) -> str:
    """Return the dpkg status file of the image, from the last layer that has it."""
    found = b""
    with tarfile.open(image) as archive:
        [manifest] = json.load(archive.extractfile("manifest.json"))  # type: ignore[arg-type]
        for name in manifest["Layers"]:
            with tarfile.open(fileobj=archive.extractfile(name)) as layer:
                for member in layer:
                    if member.name in STATUS:
                        found = layer.extractfile(member).read()  # type: ignore[union-attr]
    return found.decode()


def components(status: str) -> list[dict[str, Any]]:
    packages = [
        dict(line.split(": ", 1) for line in one.splitlines() if ": " in line[1:]) for one in status.split("\n\n")
    ]
    return [
        {
            "type": "library",
            "bom-ref": f"deb:{one['Package']}:{one['Architecture']}",
            "name": one["Package"],
            "version": one["Version"],
            "purl": f"pkg:deb/debian/{one['Package']}@{quote(one['Version'], safe='.~-')}?arch={one['Architecture']}",
        }
        for one in packages
        if one.get("Status", "").endswith(" installed")
    ]


if __name__ == "__main__":
    bill = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    bill["components"] += components(installed(Path(sys.argv[2])))
    json.dump(bill, sys.stdout, indent=2)
