# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox mcp`: our tools for other agents, over the Model Context Protocol."""
