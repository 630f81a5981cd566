"""Chooses the sender of an email, and the brand shown in an SMS or WhatsApp message (spec 4.1.1, contract 2 to 4)."""

import msgspec

from heliograph.domain.mail.address import Address, format_name_addr, parse_address, parse_name_addr
from heliograph.domain.refusals import (
    BrandDomainNotFound,
    DisplayNameIdNotApproved,
    DisplayNameIdNotFound,
    DisplayNameIdWrongDomain,
    DisplayNameNotApproved,
    FromDomainUnverified,
    InvalidFromAddress,
    KeyDomainScope,
    NoApprovedBrandDomain,
    SandboxFromLocked,
)
from heliograph.domain.setup.records import Caller, DisplayName, Domain, Key, Platform, Team
from heliograph.domain.text import collapse_spaces, quoted


class Sender(msgspec.Struct, frozen=True, kw_only=True):
    address: Address
    name: str
    domain: Domain | None  # None for the platform sender

    @property
    def header(self) -> str:
        """Return the value of the From header, before non-ASCII text is encoded."""
        return format_name_addr(self.name, self.address.original)


def resolve_sender(caller: Caller, platform: Platform, from_: str | None, from_display_id: str | None) -> Sender:
    team = caller.team
    if caller.captured and from_ is not None:
        name, address = _parse_from(from_)
        return Sender(address=address, name=name or "", domain=None)
    if team.sandbox:
        name, address = _platform_sender(platform, from_)
        domain, brand = None, platform.brand
    else:
        name, address, domain = _team_sender(team, caller.key, from_)
        brand = domain.brand
    if name is not None or from_display_id is not None:
        brand = _display_name(team, domain, brand, name, from_display_id)
    return Sender(address=address, name=brand, domain=domain)


def _platform_sender(platform: Platform, from_: str | None) -> tuple[str | None, Address]:
    platform_address = parse_address(platform.sender)
    if platform_address is None:
        raise ValueError(f"platform.sender {platform.sender!r} is not an email address")
    if from_ is None:
        return None, platform_address
    name, address = _parse_from(from_)
    if address.normal != platform_address.normal:
        raise SandboxFromLocked(
            f"from {quoted(address.original)} is not {platform_address.original}, the only sender of a sandbox team. "
            f"{SandboxFromLocked.fix}",
            param="from",
        )
    return name, address


def _team_sender(team: Team, key: Key, from_: str | None) -> tuple[str | None, Address, Domain]:
    if not team.approved_domains:
        raise NoApprovedBrandDomain(param="from")
    name, address = _parse_from(from_)
    domain = team.domains.get(address.domain)
    if domain is None or not domain.usable:
        raise FromDomainUnverified(
            f"{address.domain} is not a verified and approved domain of the team. {FromDomainUnverified.fix}",
            param="from",
        )
    if key.domain is not None:
        _check_key_domain(key, domain, "from")
    return name, address, domain


def _parse_from(from_: str | None) -> tuple[str | None, Address]:
    if from_ is None:
        raise InvalidFromAddress(f"from is missing. {InvalidFromAddress.fix}", param="from")
    parsed = parse_name_addr(from_)
    if parsed is None:
        raise InvalidFromAddress(
            f"from {quoted(from_)} is neither an email address nor a name with an address. {InvalidFromAddress.fix}",
            param="from",
        )
    return parsed


def _check_key_domain(key: Key, domain: Domain, param: str) -> None:
    if key.domain not in (None, domain.name):
        raise KeyDomainScope(
            f"The key is restricted to {key.domain} and cannot send for {domain.name}. {KeyDomainScope.fix}",
            param=param,
        )


def _display_name(team: Team, domain: Domain | None, brand: str, name: str | None, display_name_id: str | None) -> str:
    named_by_id = None if display_name_id is None else _alternate_by_id(team, domain, display_name_id).name
    if name is None:
        return named_by_id or brand
    if named_by_id is not None:
        if _comparable_name(name) == _comparable_name(named_by_id):
            return named_by_id
        reason = f"is not {quoted(named_by_id)}, the name of from_display_id"
    elif name == collapse_spaces(brand):
        return brand
    else:
        for alternate in _approved_alternates(team, domain):
            if _comparable_name(alternate.name) == _comparable_name(name):
                return alternate.name
        reason = f"is neither the brand name {quoted(brand)} nor an approved display name"
    raise DisplayNameNotApproved(
        f"The display name {quoted(name)} {reason}. {DisplayNameNotApproved.fix}", param="from"
    )


def _alternate_by_id(team: Team, domain: Domain | None, display_name_id: str) -> DisplayName:
    alternate = team.display_names.get(display_name_id)
    if alternate is None:
        raise DisplayNameIdNotFound(
            f"The team has no display name {quoted(display_name_id)}. {DisplayNameIdNotFound.fix}",
            param="from_display_id",
        )
    if domain is None or alternate.domain != domain.id:
        raise DisplayNameIdWrongDomain(
            f"{display_name_id} belongs to a different domain than from. {DisplayNameIdWrongDomain.fix}",
            param="from_display_id",
        )
    if not alternate.approved:
        raise DisplayNameIdNotApproved(
            f"{display_name_id} is not approved yet. {DisplayNameIdNotApproved.fix}", param="from_display_id"
        )
    return alternate


def _approved_alternates(team: Team, domain: Domain | None) -> list[DisplayName]:
    """Return the team's approved display names, those of the sending domain first."""
    approved = [alternate for alternate in team.display_names.values() if alternate.approved]
    return sorted(approved, key=lambda alternate: domain is None or alternate.domain != domain.id)


def _comparable_name(name: str) -> str:
    return collapse_spaces(name).casefold()


def brand_values(domain: Domain | None, platform: Platform) -> dict[str, str]:
    """Return the values of `brand.*` in a template: the domain's, or without a domain the platform's (contract 5)."""
    if domain is None:
        return {"name": platform.brand, "domain": platform.sender.rpartition("@")[2]}
    return {"name": domain.brand, "domain": domain.name}


def default_brand_values(team: Team, platform: Platform) -> dict[str, str]:
    """Return the values of `brand.*` if no sender is known, as in a preview."""
    return brand_values(next(iter(team.approved_domains), None), platform)


def possible_brand_values(team: Team, platform: Platform) -> list[dict[str, str]]:
    """Return each set of values that `brand.*` can have in messages of the team."""
    team_brands = [brand_values(domain, platform) for domain in team.approved_domains]
    return team_brands if team_brands and not team.sandbox else [brand_values(None, platform), *team_brands]


def resolve_brand_domain(team: Team, key: Key, brand_domain_id: str | None) -> Domain | None:
    """Return the domain whose brand an SMS or WhatsApp message shows; None if a sandbox team has none."""
    approved = team.approved_domains
    if not approved and not team.sandbox:
        raise NoApprovedBrandDomain()
    if brand_domain_id is not None:
        for domain in approved:
            if domain.id == brand_domain_id:
                _check_key_domain(key, domain, "brand_domain_id")
                return domain
        raise BrandDomainNotFound(
            f"The team has no approved verified domain {quoted(brand_domain_id)}. {BrandDomainNotFound.fix}",
            param="brand_domain_id",
        )
    for domain in approved:
        if key.domain in (None, domain.name):
            return domain
    if team.sandbox:
        return None
    raise KeyDomainScope(
        f"The key is restricted to {key.domain}, which is not an approved verified domain of the team. "
        f"{KeyDomainScope.fix}"
    )
