# SPDX-License-Identifier: GPL-3.0-or-later
"""Recognize secrets in the values of variables, whatever the variables are called."""

from __future__ import annotations

import re

# Text that a secret of some kind contains, in lower case, and the pattern of the secret: to compile
# all patterns takes 10 ms, and most variables contain none of the texts.
_PATTERNS = {
    # Logins in addresses: http://name:password@host, https://TOKEN@host, name:password@host
    "://": r"://[^/@\s]*:[^/@\s]+@|://[^/@\s:]{16,}@",
    "@": r"^(?!(?:mailto|xmpp|sips?|acct|npm|workspace|file|git|ssh):)[\w.+%-]+:[^\s/@:]{3,}"
    r"@(?!sha\d+:|v?\d+(?:\.\d+){0,2}(?:[-+][\w.]*)?$)[\w(\[]",
    # Signed addresses
    "?": r"(?i)://\S*[?&](?:[\w-]*signature|sig|[\w-]*token|auth|authorization|(?:[\w-]*api)?[_-]?key"
    r"|secret|code)=[^&\s]{8,}",
    # Addresses that are secrets themselves
    "hook": r"(?i)://\S*(?:\bhooks?\b|webhooks?)\S*/[\w-]{8,}",
    "/bot": r"://api\.telegram\.org/bot\d",
    "logic.azure": r"(?i)://\S*logic\.azure\.com\S*/triggers/",
    # password=..., but not the text of a shell function: password=$1
    **dict.fromkeys(
        ("pass", "pwd", "secret", "token", "key"),
        r"(?i)(?:\b|_|[a-z])(?:password|passwd|passphrase|(?<![a-z])pwd|secret|token|api[_-]?key"
        r"|access[_-]?key|account[_-]?key|private[_-]?key|shared[_-]?key)"
        r"""(?:["']?\s?[=:]\s?["']?(?![$%<{(*"'\s])[^\s;,&"']{3,})"""
        # --token ..., but no other option, nor a number
        r"""|(?i:(?:^|[\s"'])--?[\w-]*(?:password|passwd|passphrase|secret|token|key)[\s=]+["']?"""
        r"""(?![-$%<{(*]|\d+(?:\s|$))[^\s"']{6,})""",
    ),
    "bearer ": r"(?i)\bbearer [\w.~+/=-]{8,}",
    "authorization": r"""(?i)\bauthorization["']?\s*[=:]\s*["']?(?:[\w-]+\s+)?"""
    r"""(?=\S*\d)[^\s"'$]{6,}""",
    "cookie:": r"(?i)\bcookie:\s*[^\s=]+=[^\s$;]{6,}",
    # curl -u name:password, but not the numbers of a user and a group
    **dict.fromkeys(
        ("-u ", "--user"), r"(?:^|\s)(?:-u|--user)[\s=]?(?!\d+:\d+\b)[\w.+@-]+:[^\s:$/]{3,}"
    ),
    "basic ": r"(?i)\bbasic [a-z0-9+/]{8,}={0,2}(?:\s|$)",
    # Private keys, as they are and in base64
    "private key": r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY",
    "ls0tls1crudjti": r"LS0tLS1CRUdJTi",
    "age-secret-key-": r"AGE-SECRET-KEY-(?:PQ-)?1",
    # JSON Web Tokens, and those of Discord
    "eyj": r"\beyJ[\w-]{8,}\.[\w-]{8,}",
    ".": r"\b[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,}\b",
    # Code hosts, registries and trackers
    "gh": r"\bgh[opsur]_\w{20,}",
    "github_pat_": r"\bgithub_pat_\w{20,}",
    "gl": r"\bgl(?:pat|dt|rt|rtr|cbt|ptt|ft|soat|ffct|imt|agent|oas)-[\w-]{16,}",
    "at": r"\bAT(?:ATT3|CTT3|BB)[\w=-]{16,}",
    "lin_": r"\blin_(?:api|oauth)_\w{16,}",
    "npm_": r"\bnpm_[A-Za-z0-9]{30,}",
    "pypi-": r"\bpypi-[\w-]{16,}",
    "rubygems_": r"\brubygems_[0-9a-f]{32,}",
    "cio": r"\bcio[A-Za-z0-9]{32}\b",
    "oy2": r"\boy2[a-z0-9]{43}\b",
    "dckr_": r"\bdckr_(?:pat|oat)_[\w-]{16,}",
    "cmvmd": r"\bcmVmd[A-Za-z0-9]{59}\b",
    "akcp": r"\bAKCp[A-Za-z0-9]{16,}",
    # Models
    "sk-": r"\bsk-(?=[\w-]*\d)[\w-]{16,}",
    "hf_": r"\b(?:hf|api_org)_[A-Za-z0-9]{30,}",
    "gsk_": r"\bgsk_\w{20,}",
    "xai-": r"\bxai-\w{20,}",
    "r8_": r"\br8_\w{20,}",
    "pplx-": r"\bpplx-\w{20,}",
    "tvly-": r"\btvly-[\w-]{16,}",
    "nvapi-": r"\bnvapi-[\w-]{20,}",
    "fw_": r"\bfw_\w{20,}\b",
    # Clouds
    **dict.fromkeys(("akia", "asia", "abia", "acca"), r"\bA(?:KI|SI|BI|CC)A[A-Z0-9]{16}\b"),
    "aiza": r"\bAIza[\w-]{30,}",
    "ya29.": r"\bya29\.[\w-]{16,}",
    "gocspx-": r"\bGOCSPX-[\w-]{16,}",
    "_v1_": r"\bdo[opr]_v1_[0-9a-f]{32,}",
    "dapi": r"\bdapi[0-9a-f]{32}",
    "hv": r"\bhv[bsr]\.[\w-]{16,}",
    "atlasv1": r"\b\w{14}\.atlasv1\.[\w-]{32,}",
    "pul-": r"\bpul-[0-9a-f]{32,}",
    "tskey-": r"\btskey-[\w-]{12,}",
    "fo1_": r"\bfo1_[\w-]{20,}",
    "flyv1": r"\bFlyV1 fm\d_",
    "nfp_": r"\bnfp_\w{20,}",
    "sbp_": r"\bsbp_[0-9a-f]{32,}",
    "sb_secret_": r"\bsb_secret_[\w-]{16,}",
    "pscale_": r"\bpscale_(?:tkn|pw|oauth)_[\w.=-]{16,}",
    "dp.": r"\bdp\.(?:pt|st|ct|sa|scim|audit)\.[\w.-]{16,}",
    "ops_": r"\bops_eyJ",
    "rnd_": r"\brnd_[A-Za-z0-9]{28,}\b",
    "hrku-": r"\bHRKU-[\w-]{16,}",
    # Services
    "xox": r"\bxox[abceoprs](?:-\d)?[-.][\w.-]{10,}",
    "xapp-": r"\bxapp-\d-[\w-]{10,}",
    "_live_": r"\b(?:sk|rk|pk)_live_\w{10,}",
    "_test_": r"\b(?:sk|rk)_test_\w{10,}",
    "whsec_": r"\bwhsec_[\w+/=]{16,}",
    "sq0": r"\bsq0(?:csp|atp|idp)-[\w-]{16,}",
    "shp": r"\bshp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}",
    "sg.": r"\bSG\.[\w-]{16,}\.[\w-]{16,}",
    "key-": r"\bkey-[0-9a-f]{32}\b",
    "sk": r"\bSK[0-9a-f]{32}\b",
    "xkeysib-": r"\bxkeysib-[0-9a-f]{32,}",
    "glsa_": r"\bglsa_\w{20,}",
    "glc_": r"\bglc_[\w+/=]{20,}",
    "sntry": r"\bsntry[su]_[\w+/=-]{16,}",
    "nrak-": r"\bNRAK-[A-Z0-9]{20,}",
    "phx_": r"\bphx_\w{20,}",
    "ntn_": r"\bntn_\w{20,}",
    "pmak-": r"\bPMAK-[0-9a-f]{16,}",
    "fig": r"\bfig[dou]_[\w-]{20,}",
    "ccipat_": r"\bCCIPAT_\w{16,}",
    ":aa": r"\b\d{8,10}:AA[\w-]{32,}",
}
_SHORTEST = 8
# Random letters and digits: nearly every second one is of another kind than the one before it. In
# names of people's making, few are. Hashes, in lower case, are no secrets.
_RANDOM = r"[A-Za-z0-9+/_-]{24,}={0,2}"
_CHANGES = r"(?<=[a-z])[A-Z0-9]|(?<=[A-Z])[a-z0-9]|(?<=[0-9])[A-Za-z]"
_RANDOM_SHARE = 0.4


def is_secret(value: str) -> bool:
    """Return whether a variable's value contains something that looks like a secret."""
    # Paths, also several, contain all kinds of names. With options, it is a command.
    is_path = value.startswith(("/", "~/", "./", "../")) and " -" not in value
    if len(value) < _SHORTEST or is_path:
        return False
    lower = value.lower()
    if lower != value and re.fullmatch(_RANDOM, value):
        changes = len(re.findall(_CHANGES, value))
        if changes > _RANDOM_SHARE * len(value):
            return True
    return any(re.search(_PATTERNS[mark], value) for mark in _PATTERNS if mark in lower)
