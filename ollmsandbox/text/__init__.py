# SPDX-License-Identifier: GPL-3.0-or-later
"""Text from commands, models, servers and files, made safe for the place where it appears.

| Place                                            | Function                       | Module  |
|--------------------------------------------------|--------------------------------|---------|
| a question, a card, a label: several lines       | `visible`                      | visible |
| a question, a path, a title: one line            | `visible_line`                 | visible |
| a sentence of this program, in any language      | `visible_words`                | visible |
| a command's output in the window                 | `mark_hidden`                  | visible |
| a line of a file, in a diff                      | `mark_hidden_line`             | visible |
| a title or a message of a server: one short line | `printable_line`               | visible |
| Markdown, which Pango shows                      | `replace_unshowable`           | visible |
| text that is stored or sent                      | `replace_surrogates`           | visible |
| text for a model, or for a terminal              | `harmless`                     | ansi    |
| a command's output in a terminal, as it arrives  | `LiveOutput`                   | ansi    |
| a path for a model, or in a list in a terminal   | `escape_line`                  | ansi    |

The functions of `visible` write ⟨U+202E⟩ for a character that cannot be seen.
"""
