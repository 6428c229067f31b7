"""Every setting of the site, in one file. Values that differ between machines come from the
environment through `apps.common.environment`, whose readers refuse what does not parse.

`docs/settings.md` lists the variables; `PRODUCTION=1` makes the strict ones compulsory.
"""

import sys
from pathlib import Path

import dj_database_url
from csp.constants import NONE, SELF

from apps.common import environment as env
from apps.common import mail
from apps.common.scratch import scratch_dir
from workers import logs

BASE_DIR = env.ROOT
VAR_DIR = env.private_folder(env.var_dir())
PRODUCTION = env.flag("PRODUCTION")
DEBUG = env.flag("DEBUG")
TESTING = "pytest" in sys.modules
PORT = env.number("PORT", 8000, low=1, high=65535)
# Where config/asgi.py listens, and how many may watch through one such process.
STREAM_PORT = env.number("STREAM_PORT", PORT + 1 if PORT < 65535 else PORT - 1, low=1, high=65535)
STREAM_WATCHERS = env.number("STREAM_WATCHERS", 4000, low=0, high=20_000)
LOG_LEVEL = env.choice("LOG_LEVEL", "INFO", ("DEBUG", "INFO", "WARNING", "ERROR"))

if PRODUCTION and not env.text("SECRET_KEY"):
    raise env.BadEnvironment("SECRET_KEY must be set when PRODUCTION=1")
SECRET_KEY = env.text("SECRET_KEY") or env.local_secret(VAR_DIR)
# Former keys, newest first: what they signed stays good until it is signed again.
SECRET_KEY_FALLBACKS = env.words("SECRET_KEY_FALLBACKS")
ALLOWED_HOSTS = env.words("ALLOWED_HOSTS", "" if PRODUCTION else "localhost,127.0.0.1,[::1]")
CSRF_TRUSTED_ORIGINS = env.words("CSRF_TRUSTED_ORIGINS")
SITE_URL = env.text("SITE_URL", f"http://127.0.0.1:{PORT}")

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "csp",
    "django_htmx",
    "django_scim",
    "apps.common",
    "apps.accounts",
    "apps.labeling",
    "apps.agreement",
    "apps.snapshots",
    "apps.training",
    "apps.monitoring",
    "apps.evaluation",
    "apps.loop",
]

MIDDLEWARE = [
    "apps.common.front.EdgeMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "apps.common.front.ProbeMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "apps.common.front.FrontMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "apps.accounts.reader.ReaderMiddleware",
    "apps.accounts.middleware.SignedInMiddleware",
    "apps.common.middleware.SignInMiddleware",
    "apps.accounts.middleware.MaintenanceMiddleware",
    "apps.accounts.middleware.SecondFactorMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "apps.common.middleware.DomainErrorMiddleware",
]

ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
ASGI_APPLICATION = "config.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "apps.accounts.context.frame",
            ],
        },
    },
]

# --- database, cache, broker -------------------------------------------------------------------
# `manage.py` starts the embedded servers before settings are read and puts their addresses into
# the environment, so there is one way to be connected: DATABASE_URL and REDIS_URL.
DATABASE_URL = env.text("DATABASE_URL", "postgresql://postgres@/concord?host=/nonexistent")
# The role that owns the tables; `migrate` alone uses it (apps/common/roles.sql).
DATABASE_OWNER_URL = env.text("DATABASE_OWNER_URL")
REDIS_URL = env.text("REDIS_URL", "unix:///nonexistent/redis.sock")
CACHE_URL = env.text("CACHE_URL", REDIS_URL)
if PRODUCTION and env.same_server(CACHE_URL, REDIS_URL):
    raise env.BadEnvironment(
        "CACHE_URL must name another Redis than REDIS_URL when PRODUCTION=1: training workers "
        "reach the broker, and must not reach the sessions; see docs/security.md"
    )

DATABASES = {"default": dj_database_url.parse(DATABASE_URL, conn_health_checks=True)}
# The web processes keep a few connections open (a new one costs more than a whole vote); worker
# and command processes use one each, which the web side's workers (config/celery.py) keep.
DATABASES["default"]["CONN_MAX_AGE"] = env.number("DATABASE_KEEP_SECONDS", 0, low=0, high=86_400)
if env.flag("DATABASE_POOL"):
    DATABASES["default"]["CONN_MAX_AGE"] = 0  # the pool keeps them
    DATABASES["default"]["OPTIONS"] = DATABASES["default"].get("OPTIONS", {}) | {
        "pool": {"min_size": 1, "max_size": 12, "timeout": 10}
    }
# How long one statement may take, by what runs it; 0: no limit is sent, the server's own holds.
# Commands have none (migrations, backups, imports by shell); docs/operations.md says why.
PROCESS = env.process
STATEMENT_SECONDS = env.number("STATEMENT_SECONDS", 30, low=0, high=3_600)  # of pages and the API
LONG_STATEMENT_SECONDS = env.number("LONG_STATEMENT_SECONDS", 600, low=0, high=86_400)  # of heavy
TASK_STATEMENT_SECONDS = env.number("TASK_STATEMENT_SECONDS", 7_200, low=0, high=7 * 86_400)
LOCK_SECONDS = env.number("LOCK_SECONDS", 15, low=0, high=3_600)  # of pages and the API
IDLE_TRANSACTION_SECONDS = env.number("IDLE_TRANSACTION_SECONDS", 120, low=0, high=3_600)
if LONG_STATEMENT_SECONDS and not STATEMENT_SECONDS <= LONG_STATEMENT_SECONDS:
    raise env.BadEnvironment("LONG_STATEMENT_SECONDS must not be below STATEMENT_SECONDS")
DATABASES["default"].setdefault("OPTIONS", {}).update(
    env.session_settings(
        DATABASES["default"]["OPTIONS"].get("options", ""),
        **{
            "web": {
                "statement_timeout": f"{STATEMENT_SECONDS}s",
                "lock_timeout": f"{LOCK_SECONDS}s",
                "idle_in_transaction_session_timeout": f"{IDLE_TRANSACTION_SECONDS}s",
                # One page must not have the cores that others' votes need.
                "max_parallel_workers_per_gather": "0",
            },
            "tasks": {"statement_timeout": f"{TASK_STATEMENT_SECONDS}s"},
            "command": {},
        }[PROCESS],
    )
)
# Where DATABASE_URL is that of a PgBouncer in transaction mode: the database itself, for this role.
DATABASE_DIRECT_URL = env.text("DATABASE_DIRECT_URL")
if DATABASE_DIRECT_URL:
    if env.same_server(DATABASE_DIRECT_URL, DATABASE_URL, port=5432):
        raise env.BadEnvironment("DATABASE_DIRECT_URL must not name the pooler of DATABASE_URL")
    if DATABASE_OWNER_URL and env.same_server(DATABASE_OWNER_URL, DATABASE_URL, port=5432):
        raise env.BadEnvironment("DATABASE_OWNER_URL must not name the pooler of DATABASE_URL")
    DATABASES["default"]["DISABLE_SERVER_SIDE_CURSORS"] = True
    # PgBouncer knows no `options`; limits of time are its own matter (docs/deploy.md).
    DATABASES["default"].get("OPTIONS", {}).pop("options", None)
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

CACHES = {
    "default": {
        "BACKEND": "apps.common.cache.ForgivingRedisCache",
        "LOCATION": CACHE_URL,
        "KEY_PREFIX": "concord",
        "KEY_FUNCTION": "apps.common.cache.hashed_key",
        "OPTIONS": {"socket_connect_timeout": 2, "socket_timeout": 2},
    }
}
SESSION_ENGINE = "django.contrib.sessions.backends.cached_db"
MESSAGE_STORAGE = "apps.common.http.MessageCookie"

# Files both sides read: snapshots, checkpoints, event spools. Any fsspec URL.
ARTIFACTS_URL = env.text("ARTIFACTS_URL", str(VAR_DIR / "artifacts"))

# Where the scheduler's backups go: a folder or any fsspec URL; and the key they are encrypted with.
BACKUP_TARGET = env.text("BACKUP_TARGET")
BACKUP_KEY_FILE = env.text("BACKUP_KEY_FILE")
BACKUP_EVERY_HOURS = env.number("BACKUP_EVERY_HOURS", 24, low=1, high=24 * 31)
BACKUP_KEEP = env.number("BACKUP_KEEP", 14, low=0, high=10_000)  # 0: all
BACKUP_CHECK_DAYS = env.number("BACKUP_CHECK_DAYS", 30, low=1, high=366)

# --- people ------------------------------------------------------------------------------------
AUTH_USER_MODEL = "accounts.User"
AUTHENTICATION_BACKENDS = ["apps.accounts.backends.SessionBackend"]
LOGIN_URL = "accounts:sign_in"
ACCOUNT_ADAPTER = "apps.accounts.backends.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"username", "email"}
ACCOUNT_SESSION_REMEMBER = True  # until SESSION_COOKIE_AGE or SESSION_IDLE_HOURS end it
ACCOUNT_EMAIL_VERIFICATION = "none"  # who invites knows the address; nobody signs up
# apps/accounts/throttle.py counts tries of passwords and codes; the adapter says whose address.
ACCOUNT_RATE_LIMITS = {"login": None, "login_failed": None}
ACCOUNT_EMAIL_UNKNOWN_ACCOUNTS = False  # whether an address has an account is nobody's business
ACCOUNT_DEFAULT_HTTP_PROTOCOL = "https" if PRODUCTION else "http"
PASSWORD_RESET_TIMEOUT = 3 * 86_400
# Approvals, overrides and exports of personal data ask again after so many minutes.
REAUTHENTICATE_MINUTES = env.number("REAUTHENTICATE_MINUTES", 15, low=1, high=1_440)
# Roles whose people need a second factor; where there are any, site administrators do too.
REQUIRE_SECOND_FACTOR = env.roles("REQUIRE_SECOND_FACTOR")
MFA_ADAPTER = "apps.accounts.backends.FactorAdapter"
MFA_SUPPORTED_TYPES = ["totp", "recovery_codes", "webauthn"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_RECOVERY_CODES_SHOW_ONCE = True
MFA_TOTP_TOLERANCE = 1  # a clock may be half a minute off
MFA_REAUTHENTICATION_REQUIRED = False  # apps/accounts/reauthentication.py asks at these pages too
MFA_ALLOW_UNVERIFIED_EMAIL = True  # as ACCOUNT_EMAIL_VERIFICATION
MFA_TOTP_ISSUER = f"Concord ({mail.host_of(SITE_URL)})"
MFA_FORMS = {
    "authenticate": "apps.accounts.forms.CodeForm",
    "authenticate_webauthn": "apps.accounts.forms.PasskeyCheckForm",
    "activate_totp": "apps.accounts.forms.AppForm",
    "add_webauthn": "apps.accounts.forms.PasskeyForm",
}
MFA_RATE_LIMITS = {"webauthn_login": "60/m/ip"}  # an office shares an address
# Sign-in by a provider of OpenID Connect; none without OIDC_ISSUER (apps/accounts/oidc.py).
OIDC_ISSUER = env.text("OIDC_ISSUER").rstrip("/")
OIDC_CLIENT_ID = env.text("OIDC_CLIENT_ID")
OIDC_CLIENT_SECRET = env.text("OIDC_CLIENT_SECRET")
OIDC_NAME = env.text("OIDC_NAME", "single sign-on")
OIDC_ROLES = env.claim_rules("OIDC_ROLES")
# Bearer token of the organisation's directory, which makes, changes and takes away people (SCIM).
SCIM_TOKEN = env.token("SCIM_TOKEN", least=32)
SCIM_SERVICE_PROVIDER = {
    "SCHEME": SITE_URL.partition("://")[0],
    "NETLOC": SITE_URL.partition("://")[2].partition("/")[0],
    "USER_ADAPTER": "apps.accounts.scim.people.Person",
    "USER_FILTER_PARSER": "apps.accounts.scim.filters.PersonFilter",
    "AUTH_CHECK_MIDDLEWARE": "apps.accounts.scim.gate.TokenCheck",
    "SERVICE_PROVIDER_CONFIG_MODEL": "apps.accounts.scim.service.Abilities",
    "GET_EXTRA_MODEL_FILTER_KWARGS_GETTER": "apps.accounts.scim.gate.visible",
    "AUTHENTICATION_SCHEMES": [
        {"type": "oauthbearertoken", "name": "Bearer token", "description": "SCIM_TOKEN"}
    ],
}
OIDC_LINK_BY_EMAIL = env.flag("OIDC_LINK_BY_EMAIL")
OIDC_ONLY = env.flag("OIDC_ONLY")
if OIDC_ISSUER and not OIDC_CLIENT_ID:
    raise env.BadEnvironment("OIDC_CLIENT_ID must be set where OIDC_ISSUER is")
if PRODUCTION and OIDC_ISSUER and not OIDC_ISSUER.startswith("https://"):
    raise env.BadEnvironment("OIDC_ISSUER must begin with https:// when PRODUCTION=1")
if not OIDC_ISSUER and (OIDC_ONLY or OIDC_ROLES):
    raise env.BadEnvironment("OIDC_ONLY and OIDC_ROLES need OIDC_ISSUER")
SOCIALACCOUNT_ADAPTER = "apps.accounts.oidc.ProviderAdapter"
SOCIALACCOUNT_EMAIL_VERIFICATION = "none"
SOCIALACCOUNT_EMAIL_AUTHENTICATION_AUTO_CONNECT = True
# A link, not a form: browsers follow no redirect from a form to what `form-action` leaves out.
SOCIALACCOUNT_LOGIN_ON_GET = True
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "accounts:sign_in"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 10},
    },
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "apps.common.passwords.DecoratedPasswordValidator"},
]
PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.ScryptPasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
if TESTING:  # a slow hash has no point where passwords open nothing
    PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

# --- files -------------------------------------------------------------------------------------
STATIC_URL = "static/"
STATIC_ROOT = Path(env.text("STATIC_ROOT") or VAR_DIR / "static")
STATICFILES_DIRS = [BASE_DIR / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"
        if TESTING or DEBUG
        else "whitenoise.storage.CompressedManifestStaticFilesStorage"
    },
}
WHITENOISE_USE_FINDERS = TESTING or DEBUG
WHITENOISE_ALLOW_ALL_ORIGINS = False
# Tests make a site per client: reading every static file each time would be half of their time.
WHITENOISE_AUTOREFRESH = TESTING or DEBUG
DATA_UPLOAD_MAX_MEMORY_SIZE = 20 * 1024 * 1024
IMPORT_MAX_MB = env.number("IMPORT_MAX_MB", 200, low=1, high=10_000)
FILE_UPLOAD_TEMP_DIR = scratch_dir()
# What a file may cost its reader, a process of its own (apps.common.sandbox).
IMPORT_MAX_COLUMNS = env.number("IMPORT_MAX_COLUMNS", 500, low=10, high=10_000)
IMPORT_DECODED_MB = env.number("IMPORT_DECODED_MB", 2_000, low=10, high=100_000)
IMPORT_PARSE_SECONDS = env.number("IMPORT_PARSE_SECONDS", 1_800, low=10, high=86_400)
UPLOAD_PARSE_SECONDS = env.number("UPLOAD_PARSE_SECONDS", 9, low=1, high=600)
UPLOAD_PARSE_MB = env.number("UPLOAD_PARSE_MB", 1_500, low=500, high=100_000)
UPLOAD_PARSERS = env.number("UPLOAD_PARSERS", 2, low=1, high=64)
FILE_UPLOAD_PERMISSIONS = 0o600  # collected static files too; WhiteNoise reads them as their owner

# --- security ----------------------------------------------------------------------------------
# Whose X-Forwarded-… is believed; from anybody else these headers are dropped.
BEHIND_PROXY = env.flag("BEHIND_PROXY")
TRUSTED_PROXIES = env.networks("TRUSTED_PROXIES", "127.0.0.0/8,::1" if BEHIND_PROXY else "")
CSRF_FAILURE_VIEW = "apps.common.views.csrf_failure"
HTTPS = env.flag("HTTPS", PRODUCTION)
SECURE_SSL_REDIRECT = HTTPS
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if BEHIND_PROXY else None
SECURE_HSTS_SECONDS = 31_536_000 if HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = HTTPS
SECURE_HSTS_PRELOAD = HTTPS
SESSION_COOKIE_SECURE = HTTPS
SESSION_COOKIE_AGE = 14 * 86_400  # from the sign-in, however busy the session is
# Requests a minute (apps/common/rates.py); 0 counts nobody.
API_RATE = env.number("API_RATE", 1_200, low=0, high=1_000_000)  # of one token or session
API_RATE_UNKNOWN = env.number("API_RATE_UNKNOWN", 60, low=0, high=1_000_000)  # of one address
HEAVY_RATE = env.number("HEAVY_RATE", 120, low=0, high=100_000)  # of a person: exports, reports …
HEAVY_RATE_PROJECT = env.number("HEAVY_RATE_PROJECT", 480, low=0, high=100_000)  # of all in it
SESSION_IDLE_HOURS = env.number("SESSION_IDLE_HOURS", 24, low=1, high=336)
MAINTENANCE_LOOK_SECONDS = None if TESTING else 3.0  # None: never; a test counts queries
CSRF_COOKIE_SECURE = HTTPS
SESSION_COOKIE_HTTPONLY = True
CSRF_COOKIE_HTTPONLY = True  # scripts read the token in the page
# A browser takes a cookie of such a name from this host alone, and over HTTPS alone.
COOKIE_PREFIX = "__Host-" if HTTPS else ""
# Two checkouts on one host share its cookie jar: the name tells them apart.
SESSION_COOKIE_NAME = f"{COOKIE_PREFIX}concord_session_{PORT}"
CSRF_COOKIE_NAME = f"{COOKIE_PREFIX}concord_csrf_{PORT}"
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "img-src": [SELF, "data:"],
        "object-src": [NONE],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
        "form-action": [SELF],
    }
}

# --- messages ----------------------------------------------------------------------------------
# Without a mail server, e-mails are files below VAR_DIR/mail, and in production they are not sent.
EMAIL_URL = env.text("EMAIL_URL")
MAIL_IS_SMTP = EMAIL_URL.startswith("smtp")
MAIL_READY = bool(EMAIL_URL) or not PRODUCTION
globals().update(mail.email_settings(EMAIL_URL, VAR_DIR))
DEFAULT_FROM_EMAIL = SERVER_EMAIL = env.text(
    "MAIL_FROM", f"Concord <concord@{mail.host_of(SITE_URL)}>"
)
# Hosts inside a private network to which alerts may be posted: a name, or name:port.
WEBHOOK_HOSTS = env.words("WEBHOOK_HOSTS")
AUDIT_SYSLOG = env.syslog("AUDIT_SYSLOG")

# --- Celery ------------------------------------------------------------------------------------
CELERY_BROKER_URL = REDIS_URL
# How long a scheduler that gives no sign keeps the lead (apps/common/scheduling.py).
SCHEDULER_LEAD_SECONDS = env.number("SCHEDULER_LEAD_SECONDS", 10, low=2, high=300)
RUN_MAX_ATTEMPTS = env.number("RUN_MAX_ATTEMPTS", 3, low=1, high=20)
# After an attempt that failed at once: twice as long after each further one.
RUN_RETRY_SECONDS = env.number("RUN_RETRY_SECONDS", 0 if TESTING else 10, low=0, high=3600)
# A run whose worker has said nothing for this long, and whose lease has run out, is requeued.
RUN_SILENCE_SECONDS = env.number("RUN_SILENCE_SECONDS", 45, low=5, high=3600)
# A job that nobody has claimed for this long, and that is in no queue, is sent again.
RUN_RESEND_SECONDS = env.number("RUN_RESEND_SECONDS", 15, low=1, high=3600)
# How long a trainer may go on without its supervisor reaching Redis; see docs/jobs.md.
RUN_LEASE_SECONDS = env.number("RUN_LEASE_SECONDS", 30, low=2, high=600)
# Between the polite request to end and the kill.
RUN_GRACE_SECONDS = env.number("RUN_GRACE_SECONDS", 20, low=1, high=3600)
# The same after somebody has pressed Stop: the step at hand is finished and saved. Cancel ends it.
RUN_STOP_SECONDS = env.number("RUN_STOP_SECONDS", 900, low=1, high=86_400)
# Wall clock of one attempt.
RUN_MAX_SECONDS = env.number("RUN_MAX_SECONDS", 86_400, low=1, high=30 * 86_400)

# The most that any project gets, whatever its own admins set; 0: no limit of the site.
PROJECT_SPACE_GB = env.number("PROJECT_SPACE_GB", 0, low=0, high=10**9)
PROJECT_GPU_HOURS = env.number("PROJECT_GPU_HOURS", 0, low=0, high=10**7)
PROJECT_VOTES = env.number("PROJECT_VOTES", 0, low=0, high=10**9)

# Runs that ended so many days ago keep so many points of each metric, its extremes; 0 days: all.
METRICS_KEEP_DAYS = env.number("METRICS_KEEP_DAYS", 90, low=0, high=36_500)
METRICS_KEEP_POINTS = env.number("METRICS_KEEP_POINTS", 1000, low=50, high=1_000_000)

# --- /metrics -----------------------------------------------------------------------------------
# Who may read it; neither set, it does not exist. It names projects only where this is wanted.
METRICS_TOKEN = env.token("METRICS_TOKEN", least=16)
METRICS_ALLOW = env.networks("METRICS_ALLOW")
METRICS_PROJECT_LABELS = env.flag("METRICS_PROJECT_LABELS")
# Of so many live runs it has the newest figures, by their ids; 0: of none.
METRICS_RUNS = env.number("METRICS_RUNS", 50, low=0, high=200)
# Read inside the private network, without the proxy.
SECURE_REDIRECT_EXEMPT = [r"^metrics$", r"^(health|live|ready)z$"]

# --- language, time, log -----------------------------------------------------------------------
# What annotators meet is translated (apps.common.registry.translated); times are in the zone of
# whoever reads (apps/accounts/reader.py).
LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("de", "Deutsch")]
LOCALE_PATHS = [BASE_DIR / "locale"]
TIME_ZONE = "UTC"
USE_I18N = True
USE_TZ = True

LOGGING = logs.configuration(
    level=LOG_LEVEL,
    style=env.choice("LOG_FORMAT", logs.LINES, logs.STYLES),
    loggers={
        # Refusals have one line of concord.denied, with the person and the address.
        "django.request": {"level": "ERROR"},
        "django.security": {"level": "CRITICAL"},
        "concord.denied": {"level": "ERROR" if TESTING else "INFO"},
        "django.db.backends": {"level": "INFO"},
        **logs.QUIET,
        "fido2": {"level": "WARNING"},
    },
)
SILENCED_SYSTEM_CHECKS: list[str] = []
