"""Authorisations lapse after seven days: what was not captured by then is cancelled as ``expired``."""

from __future__ import annotations

import json

from sandbox.payments import cancel_intent
from sandbox.shop import Call, Shop


def expire_authorizations(shop: Shop, call: Call) -> int:
    """How many lapsed; run when the clock is advanced, since seven days pass in no other way here."""
    lapsed = shop.store.rows(
        "SELECT intent.body FROM objects AS charge JOIN objects AS intent ON intent.id = charge.payment_intent"
        " WHERE charge.kind = 'charge'"
        " AND json_extract(charge.body, '$.payment_method_details.card.capture_before') <= ?"
        " AND json_extract(intent.body, '$.latest_charge') = charge.id"
        " AND json_extract(intent.body, '$.status') = 'requires_capture'",
        (shop.clock.now_seconds(),),
    )
    for row in lapsed:
        cancel_intent(shop, call, json.loads(row["body"]), "expired")
    return len(lapsed)
