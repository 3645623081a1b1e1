"""Settings are ``MAKEGOOD_*`` variables, read and checked once; a bad one is named with what it should be."""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict
from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from makegood.errors import ConfigurationError

PREFIX = "MAKEGOOD_"
# Keys of contexts and payloads whose values are somebody's own; a dot or an underscore is the same to them.
PERSONAL = (
    "name", "*_name", "firstname", "lastname", "surname", "forename", "fullname", "nickname", "username",
    "email", "*email*", "phone", "*phone*", "mobile", "tel", "fax", "address", "*address*", "street*", "city", "town",
    "*postcode*", "*postal*", "zip", "zip_*", "zipcode", "*birth*", "dob", "passport*", "ssn", "tax_id", "*national_id",
    "iban", "*_iban", "account_number", "card", "card_number", "cardnumber", "*_card", "card_holder", "cardholder*",
    "cvc", "cvv", "ip", "ip_*", "*_ip",
)  # fmt: skip
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


class Settings(BaseSettings):
    """Every number has its unit in its name and its reason beside it."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True)

    home: Path = Path(".makegood")
    """Data, logs and passwords of what `make up` runs."""
    database_url: SecretStr | None = None
    """postgresql://… of your own server (14 to 18); unset means the embedded one."""
    database_admin_url: SecretStr | None = None
    """Used by migrations only, where the jobs' own role may not create tables."""
    database_read_url: SecretStr | None = None
    """For the dashboard: a login with makegood_read; unset means MAKEGOOD_DATABASE_URL, whose session steps down."""
    database_act_url: SecretStr | None = None
    """For the dashboard: a login with makegood_act, which can call what people may do and see no table."""
    airflow_database_url: SecretStr | None = None
    """postgresql://… of an existing database for Airflow's own records, beside a server of yours; the embedded
    server brings one."""
    airflow_port: int = Field(8080, ge=1, le=65535)
    workflows: Annotated[tuple[str, ...], NoDecode] = ()
    """Modules that register workflow types of your own, separated by commas."""

    stripe_api_key: SecretStr = SecretStr("sk_test_makegood")
    stripe_api_base: str | None = None
    """Unset means the shop in a box on loopback, never the real Stripe by accident."""
    inventory_url: str | None = None
    shipping_url: str | None = None
    shop_port: int = Field(9900, ge=1, le=65535)

    stuck_after_seconds: int = Field(300, ge=1)
    """Without progress for this long a workflow is stuck: the published five minutes."""
    lease_seconds: float = Field(120.0, gt=0, le=86400)
    """Longer than the longest step's timeout (30 s) with room for a slow database on either side."""
    claim_batch: int = Field(500, ge=1, le=5000)
    """Rows claimed in one statement: large enough to amortise a commit, small enough to lose little."""
    calls_at_once: int = Field(32, ge=1, le=2000)
    """Outside calls under way at one time in one process. With a service that takes 50 ms that is some 450 calls per
    second, which keeps one core busy; a slower service leaves room for more."""
    key_window_hours: float = Field(20.0, gt=0, le=24)
    """Stripe forgets a key after 24 hours; four are kept as a margin."""
    forward_wait_seconds: float = Field(2.0, gt=0, le=3600)
    """A customer is waiting: the first replay of a step comes within this, and each further one within twice that."""
    forward_wait_seconds_max: float = Field(60.0, gt=0, le=86400)
    """Eight attempts then span a few minutes, about as long as a customer does."""
    undo_wait_seconds: float = Field(5.0, gt=0, le=3600)
    """Nobody waits for an undo, but it must happen."""
    undo_wait_seconds_max: float = Field(900.0, gt=0, le=86400)
    """Twenty attempts then span hours, and outlast most outages."""
    breaker_failures: int = Field(5, ge=1, le=1000)
    """So many orders in a row without one answer and the provider counts as down: fewer could be one bad order."""
    breaker_wait_seconds: float = Field(5.0, gt=0, le=3600)
    """A restart takes about this long; the wait doubles with each probe that fails."""
    breaker_wait_seconds_max: float = Field(120.0, gt=0, le=86400)
    """A provider that is back is noticed within two minutes."""
    recovery_limit: int = Field(5000, ge=1, le=1_000_000)
    """Workflows one run of a job takes at most: about a minute's work, so that the next run starts on time."""
    job_seconds_max: int = Field(600, ge=10, le=86400)
    """A run takes nothing new after this; one without a word for twice as long counts as abandoned."""
    orphaned_after_seconds: int = Field(3600, ge=1)
    """A stuck workflow of a type that no worker here knows is another deployment's, until nobody came for an hour."""
    keep_days: int = Field(90, ge=1, le=3650)
    """Runs of jobs, what they decided and delivered messages are kept this long; workflows and transitions for ever."""
    sync_enabled: bool = True
    """Off where all books come as files (`makegood reconcile import`): then a run fetches nothing."""
    sync_overlap_seconds: int = Field(3600, ge=0, le=30 * 86400)
    """So far before its watermark the provider is read again: what became visible late is found within an hour."""
    sync_again_seconds: int = Field(3 * 86400, ge=0, le=30 * 86400)
    """And so far by the nightly full run: what became visible only after a weekend's trouble at the provider."""
    sync_lag_seconds: int = Field(60, ge=1, le=86400)
    """The watermark stays this far behind the provider's clock: objects of this second may still be on their way."""
    sync_pages_at_once: int = Field(8, ge=1, le=64)
    """Requests under way at one time per collection: at 100 ms each, five collections fill the live rate."""
    sync_rate_per_second: float | None = Field(None, gt=0, le=1000)
    """Requests to the provider's lists; unset means what Stripe allows the key: 100 live, 25 in a sandbox. Lower it
    where the shop's own calls need a share of that."""
    reports: Path | None = None
    """Where the reports of reconciliations are written; unset means reports/ in the home folder."""
    finding_alert_above_minor: int = Field(100_000, ge=0)
    """A finding from this much on is told at once, in hundredths of its currency's unit: 100000 is 1,000.00 EUR."""
    reconcile_full_hour: int = Field(2, ge=0, le=23)
    """The first reconciliation after this hour (UTC) looks at everything: the provider's day has just ended."""
    notify_urls: Annotated[tuple[SecretStr, ...], NoDecode] = ()
    """Where alerts go, in apprise's form (mailto://…, slack://…, pagerduty://…), separated by spaces or commas."""
    dashboard_port: int = Field(8501, ge=1, le=65535)
    dashboard_url: str = Field("", validate_default=True)
    """Where alerts and Airflow's pages link to; unset means where `make up` runs it."""
    reconcile_charge_grace_seconds: float = Field(900.0, ge=0, le=30 * 86400)
    """Charge and order are written by different processes; within a quarter of an hour both are there."""
    reconcile_refund_grace_seconds: float = Field(86400.0, ge=0, le=30 * 86400)
    """A refund may be tried again for hours before it is there."""
    reconcile_payout_grace_seconds: float = Field(3 * 86400.0, ge=0, le=60 * 86400)
    """A payout's movements are complete after a weekend."""
    reconcile_stale_after_seconds: float = Field(6 * 3600.0, gt=0, le=30 * 86400)
    """The provider is fetched hourly; books that end this long ago miss several runs, so no remedy follows."""
    reconcile_files_stale_after_seconds: float = Field(3 * 86400.0, gt=0, le=60 * 86400)
    """The same for books that come as files: once a day, and not on a weekend."""
    reconcile_lapse_warning_seconds: float = Field(86400.0, ge=0, le=30 * 86400)
    """An authorisation lasts about seven days; in the last one somebody must act."""
    reconcile_tolerance_minor: int = Field(0, ge=0, le=10_000)
    """Money is exact; a house that rounds somewhere says by how much."""
    reconcile_fee_parts_min: int = Field(0, ge=0, le=10_000)
    reconcile_fee_parts_max: int = Field(600, ge=0, le=10_000)
    """A fee within these parts of ten thousand of the amount is nothing to look at: cards cost up to about 5 %."""
    reconcile_fee_fixed_minor: int = Field(100, ge=0, le=1_000_000)
    """And so much for each charge on top."""
    target_p95_seconds: float = Field(60.0, gt=0)
    """A customer who has waited a minute at the checkout asks whether it worked: 95 in 100 must not."""
    target_failure_rate: float = Field(0.05, ge=0, le=1)
    """One call in twenty may need a second try; where it is more, a provider is ill or a step is wrong."""
    target_stuck: int = Field(0, ge=0)
    """Each stuck order is a customer who does not know; the jobs take it up within a minute or two."""
    target_compensation_rate: float = Field(0.05, ge=0, le=1)
    """Stock runs out now and then; above one order in twenty something upstream sells what it does not have."""
    remedy_approval_seconds: float = Field(3 * 86400.0, ge=60, le=30 * 86400)
    """A weekend for the second person; after that it is asked for anew, with what is true then."""
    remedy_run_age_seconds_max: float = Field(6 * 3600.0, gt=0, le=7 * 86400)
    """Hourly runs: a verdict older than several of them is made anew before anything is done about it."""
    remedy_orphan_seconds: float = Field(3600.0, ge=0, le=30 * 86400)
    """An order that was late for its charge is there an hour later."""
    remedy_breaker_factor: float = Field(5.0, ge=1, le=1000)
    """More findings than this many times the usual are no customers' trouble but our own, or the provider's."""
    remedy_breaker_min: int = Field(50, ge=1, le=1_000_000)
    """A small house has no median worth the name: up to this many a person can still look through."""
    remedy_refusals_max: int = Field(3, ge=1, le=100)
    """What was refused this often would be refused again: a person decides."""
    remedy_limit: int = Field(500, ge=1, le=100_000)
    """Findings one run does something about: more than the caps allow anyway, few enough to end before the next run."""
    dashboard_login: Literal["", "off", "demo", "oidc", "proxy"] = ""
    """How people log in; unset means demo with the embedded database, and off (looking only) with one of yours."""
    dashboard_secrets: Path | None = None
    """For oidc: the file with Streamlit's [auth] section, readable by the dashboard alone."""
    dashboard_login_claim: str = Field("email", min_length=1)
    """For oidc: what of the identity is the login; an address that its provider has not verified is refused."""
    dashboard_trust_email: bool = False
    """For oidc: an address is believed where the provider does not say whether it has verified it, as some never do."""
    dashboard_user_header: str = Field("X-Forwarded-User", min_length=1)
    """For proxy: the header that names who is logged in."""
    dashboard_proxy_secret: SecretStr | None = None
    """For proxy: what the proxy says in X-Makegood-Proxy-Secret, so that nobody beside it is believed."""
    dashboard_proxies: Annotated[tuple[str, ...], NoDecode] = ()
    """For proxy: addresses from which it may come besides loopback, separated by commas."""
    mask_fields: Annotated[tuple[str, ...], NoDecode] = PERSONAL
    """Keys (with * for anything) whose values only an engineer sees; set, it replaces the list."""
    approval_above_minor: int = Field(50_000, ge=0)
    """Settling more than this by hand takes two people: 500.00 EUR, above which one slip costs more than a minute of a
    second person. In minor units of whatever currency: set it for the strongest one you take."""
    approval_above_orders: int = Field(100, ge=0, le=500)
    """Releasing more orders than this at once takes two people: a hundred can be looked through, more cannot."""
    approval_valid_seconds: float = Field(3600.0, ge=60, le=86400)
    """An approval is about what was seen: after an hour it is asked for anew."""
    context_bytes_max: int = Field(64 * 1024, ge=1024, le=64 * 1024)
    """The database refuses more than 64 KiB, so that no row grows without a bound."""
    log_level: str = "INFO"

    @field_validator("workflows", "dashboard_proxies", "mask_fields", mode="before")
    @classmethod
    def _split_on_commas(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("notify_urls", mode="before")
    @classmethod
    def _split_addresses(cls, value: object) -> object:
        return tuple(filter(None, re.split(r"[\s,]+", value))) if isinstance(value, str) else value

    @field_validator("notify_urls")
    @classmethod
    def _are_addresses(cls, value: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        if any("://" not in address.get_secret_value() for address in value):
            raise ValueError("each must be an address such as mailto://user:password@example.com or slack://…")
        return value

    @model_validator(mode="after")
    def _undo_is_more_patient(self) -> Settings:
        if self.undo_wait_seconds_max < self.forward_wait_seconds_max:
            raise ConfigurationError(
                f"{PREFIX}UNDO_WAIT_SECONDS_MAX is {self.undo_wait_seconds_max:g}; it must be at least "
                f"{PREFIX}FORWARD_WAIT_SECONDS_MAX ({self.forward_wait_seconds_max:g})",
                hint="Nobody waits for an undo, and it must outlast an outage.",
            )
        return self

    @field_validator(
        "database_url",
        "database_admin_url",
        "database_read_url",
        "database_act_url",
        "airflow_database_url",
        "stripe_api_base",
        "inventory_url",
        "shipping_url",
        mode="before",
    )
    @classmethod
    def _empty_means_unset(cls, value: object) -> object:
        return None if value == "" else value

    @field_validator(
        "database_url", "database_admin_url", "database_read_url", "database_act_url", "airflow_database_url"
    )
    @classmethod
    def _is_database_address(cls, value: SecretStr | None) -> SecretStr | None:
        try:
            parts = conninfo_to_dict(value.get_secret_value()) if value else {}
        except psycopg.ProgrammingError:  # libpq's own words would quote the password
            parts = None
        if parts is None or not all(port.isdigit() for port in str(parts.get("port", "0")).split(",")):
            raise ValueError("it must be an address such as postgresql://user@host:5432/database")
        return value

    @field_validator("stripe_api_base", "inventory_url", "shipping_url", "dashboard_url")
    @classmethod
    def _is_web_address(cls, value: str | None) -> str | None:
        parts = urlsplit(value or "http://unset")
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("it must be an address such as https://host or http://127.0.0.1:9900")
        return value

    @field_validator("dashboard_url", mode="before")
    @classmethod
    def _is_where_make_up_runs_it(cls, value: object, info: ValidationInfo) -> object:
        return value or f"http://127.0.0.1:{info.data.get('dashboard_port', 8501)}"

    @field_validator("log_level")
    @classmethod
    def _is_log_level(cls, value: str) -> str:
        if value.upper() not in LOG_LEVELS:
            raise ValueError(f"it must be one of {', '.join(LOG_LEVELS)}")
        return value.upper()

    @property
    def shop_url(self) -> str:
        return f"http://127.0.0.1:{self.shop_port}"

    @property
    def airflow_url(self) -> str:
        return f"http://127.0.0.1:{self.airflow_port}"

    @property
    def embedded(self) -> bool:
        return self.database_url is None and self.database_read_url is None

    @property
    def login(self) -> str:
        """How people log in to the dashboard."""
        return self.dashboard_login or ("demo" if self.embedded else "off")


@functools.cache
def get_settings() -> Settings:
    """The settings of this process; a wrong one raises ConfigurationError naming the variable."""
    try:
        return Settings()
    except ValidationError as error:
        raise ConfigurationError(
            _describe(error), hint="Correct or unset the variable and run the command again."
        ) from None


def _describe(error: ValidationError) -> str:
    lines = []
    for fault in error.errors():
        name = PREFIX + "_".join(str(part) for part in fault["loc"][:1]).upper()
        private = any(word in name for word in ("URL", "KEY", "SECRET"))
        shown = "" if private else f" (it is {os.environ.get(name)!r})"
        lines.append(f"{name}: {fault['msg']}{shown}")
    return "; ".join(lines)
