# SPDX-License-Identifier: GPL-3.0-or-later
"""Network access by host: sockets inside a sandbox, names that we answer, and connections that wait
for the user's answer."""
