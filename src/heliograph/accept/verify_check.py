"""POST /v1/verify/:id/check: checks a code that a user typed (spec 4.5)."""

from typing import Annotated, Any

import msgspec

from heliograph.accept.context import Context
from heliograph.domain.field_docs import Id, VerificationStatus, describe, schema_limits, with_example
from heliograph.domain.limits import VERIFICATION_CODE_MAX, VERIFICATION_CODE_MIN, WRONG_CODES_MAX
from heliograph.domain.setup.records import Caller
from heliograph.domain.verify.verification import attempts_left, code_digest, parse_code
from heliograph.storage.verifications import Check

CODE_DOC = describe("The code as the user typed it, 4 to 10 characters.", needed=True)
CODE_LIMITS = schema_limits(type="string", minLength=VERIFICATION_CODE_MIN, maxLength=VERIFICATION_CODE_MAX)


class CheckRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    code: Annotated[Any, CODE_LIMITS, CODE_DOC] = None


class CheckRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Result of checking a code, as the API returns it (spec 2.6)."""

    id: Id
    verified: Annotated[bool, describe("`true` on the one call that brought the right code.", example=True)]
    status: Annotated[VerificationStatus, with_example("verified")]
    remaining_attempts: Annotated[
        int, describe("Wrong codes left before exhaustion.", example=4, minimum=0, maximum=WRONG_CODES_MAX)
    ]


async def check_verification(context: Context, caller: Caller, id_: str, request: CheckRequest) -> CheckRecord:
    code = parse_code(request.code)

    def digest(salt: str) -> str:
        return code_digest(context.code_key, bytes.fromhex(salt), code).hex()

    item = Check(id=id_, team=caller.team.record.ref, at=context.clock.team_now(caller.team.record.ref), digest=digest)
    result = await context.store.verifications.check(item)
    return CheckRecord(
        id=id_, verified=result.verified, status=result.status, remaining_attempts=attempts_left(result.wrong_codes)
    )
