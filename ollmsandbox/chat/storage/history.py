# SPDX-License-Identifier: GPL-3.0-or-later
"""Stores sessions, their messages, and every permission question in the database."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable, Sequence
from operator import or_
from typing import NamedTuple, cast

from peewee import JOIN, Case, ModelSelect, fn

from ... import N_
from ...database.tables import (
    ChangeRow,
    ChatMessage,
    ChatPicture,
    ChatSession,
    Project,
    Question,
    Run,
)
from ...errors import OllmSandboxError
from ...permission.request import PermissionRequest, Verdict
from ...project.change import Kind, Recorded, State
from ...project.index import read_changes
from ...project.projects import ProjectManager
from ...text.visible import printable_line
from ...tools.base import Picture
from ..messages import Message, Role
from . import stored

_TITLE = 60
# Bytes of a session's pictures that are kept, the newest ones.
_MOST_OF_PICTURES = 32 << 20
_DROP_OLD_PICTURES = """\
DELETE FROM chatpicture WHERE id IN (
    SELECT id FROM (
        SELECT picture.id, SUM(LENGTH(picture.data)) OVER (ORDER BY picture.id DESC) AS total
        FROM chatpicture AS picture JOIN chatmessage AS message ON picture.message_id = message.id
        WHERE message.session_id = ?
    ) WHERE total > ?
)"""


# A session, when a message of it was sent, its call, its text, and the call's description.
_Row = tuple[str, float, str, str, str | None]
# Characters of a line that was found: before the first word, and all.
_BEFORE, _LONGEST_LINE = 16, 160


class SessionRun(NamedTuple):
    id: str
    command: str
    project: str
    changes: tuple[Recorded, ...]


class FoundLine(NamedTuple):
    """A line of a session that has what was searched for."""

    text: str
    # When its message was sent.
    at: float
    # The call that it is of; "" if it was said.
    call_id: str
    # The first word that was searched for.
    word: str


def new_session_id() -> str:
    """Return an id that sorts by time, as the ids of runs do."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"


def title_from(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    shown = printable_line(line)
    return shown if len(shown) <= _TITLE else f"{shown[: _TITLE - 1].rstrip()}…"


class History:
    """Blocks while it uses the database; may be used from any thread."""

    def __init__(self, manager: ProjectManager) -> None:
        self.manager = manager
        # Their rows, that of the session first.
        self._deleted: dict[str, tuple[ChatSession | ChatMessage | ChatPicture, ...]] = {}

    # --- sessions ------------------------------------------------------------------------------

    def sessions(
        self,
        project: str | None = None,
        search: str = "",
        limit: int = -1,
        *,
        only_said: bool = False,
    ) -> list[stored.SessionInfo]:
        """Return the sessions, the last used first. The search covers titles, messages, drafts, and
        the commands, files and addresses of calls. `only_said` leaves out sessions that have only a
        draft."""
        with self.manager.store.translated_errors():
            query = ChatSession.select(ChatSession, Project).join(Project, JOIN.LEFT_OUTER)
            if project is not None:
                query = query.where(Project.path == os.path.realpath(project))
            if only_said:
                query = query.where(ChatSession.id.in_(ChatMessage.select(ChatMessage.session)))
            for word in search.split():
                texts, calls = (
                    ChatMessage.select(ChatMessage.session).where(_has(field, word))
                    for field in (ChatMessage.text, _described())
                )
                query = query.where(
                    ChatSession.id.in_(texts)
                    | ChatSession.id.in_(calls)
                    | _has(ChatSession.title, word)
                    | _has(ChatSession.draft, word)
                )
            query = query.order_by(ChatSession.updated_at.desc(), ChatSession.id.desc())
            return [_info(row) for row in query.limit(limit)]

    def found_lines(self, search: str) -> dict[str, FoundLine]:
        """Return a line of the last message, or of the last call, that has all words of a search,
        by session."""
        words = search.split()
        if not words:
            return {}
        described = _described()
        with self.manager.store.translated_errors():
            newest = ChatMessage.select(fn.MAX(ChatMessage.id)).group_by(ChatMessage.session)
            for word in words:
                newest = newest.where(or_(_has(ChatMessage.text, word), _has(described, word)))
            query = ChatMessage.select(
                ChatMessage.session,
                ChatMessage.at,
                ChatMessage.call_id,
                ChatMessage.text,
                described,
            ).where(ChatMessage.id.in_(newest))
            rows = list(cast(Iterable[_Row], query.tuples()))
        return {
            session: FoundLine(_line_with(words, f"{said or ''}\n{text}"), at, call_id, words[0])
            for session, at, call_id, text, said in rows
        }

    def find(self, beginning: str) -> stored.SessionInfo:
        """Return the session with an id, or with an unambiguous beginning of one."""
        with self.manager.store.translated_errors():
            same = fn.substr(ChatSession.id, 1, len(beginning)) == beginning
            rows = list(ChatSession.select().where(same).order_by(ChatSession.id).limit(2))
        if beginning and rows and (len(rows) == 1 or rows[0].id == beginning):
            return _info(rows[0])
        if rows and beginning:
            raise OllmSandboxError(
                N_("Several session IDs begin with {beginning}."),
                N_("Enter more of the ID."),
                beginning=beginning,
            )
        raise _no_session(beginning)

    def create(self, info: stored.SessionInfo) -> None:
        project = self.manager.find_project(info.project) if info.project else None
        if info.project and project is None and os.path.isdir(info.project):
            project = self.manager.add_project(info.project)
        with self.manager.store.transaction():
            ChatSession.insert(
                id=info.id,
                project=project.id if project else None,
                title=info.title,
                model=info.model,
                connection=info.connection,
                created_at=info.created_at,
                updated_at=info.updated_at,
            ).on_conflict_ignore().execute()
            # There may be a draft already: the first message gives it its title and its model.
            unnamed = (ChatSession.id == info.id) & (ChatSession.title == "")
            ChatSession.update(
                title=info.title, model=info.model, connection=info.connection
            ).where(unnamed).execute()

    def load(self, session_id: str) -> stored.StoredSession:
        with self.manager.store.translated_errors():
            row = ChatSession.get_or_none(ChatSession.id == session_id)
            if row is None:
                raise _no_session(session_id)
            messages = list(
                ChatMessage.select()
                .where(ChatMessage.session == session_id)
                .order_by(ChatMessage.number)
            )
            shown: dict[int, list[Picture]] = {}
            for picture in _pictures_of(session_id).order_by(ChatPicture.id):
                found = Picture(picture.media_type, bytes(picture.data), picture.name)
                shown.setdefault(picture.message_id, []).append(found)
            info = _info(row)
            entries = (_entry(message, shown.get(message.id, ())) for message in messages)
            return stored.StoredSession(info, tuple(stored.repair(entries)), row.draft)

    def rename(self, session_id: str, title: str) -> None:
        shown = title_from(title)
        if not shown:
            raise OllmSandboxError(N_("A session needs a name."))
        self._update(session_id, title=shown)

    def note_model(self, session_id: str, model: str, connection: str) -> None:
        self._update(session_id, model=model, connection=connection)

    def rename_connection(self, before: str, now: str) -> None:
        with self.manager.store.transaction():
            of_it = ChatSession.connection == before
            ChatSession.update(connection=now).where(of_it).execute()

    def keep_draft(self, session_id: str, text: str) -> None:
        """Store what was typed and not sent. An empty draft removes a session that has nothing
        else."""
        with self.manager.store.transaction():
            session = ChatSession.id == session_id
            ChatSession.update(draft=text).where(session).execute()
            said = ChatMessage.select(ChatMessage.session).where(ChatMessage.session == session_id)
            if not text and not said.exists():
                ChatSession.delete().where(session & (ChatSession.title == "")).execute()

    def delete(self, session_id: str) -> None:
        """Delete a session. It can be restored until the program ends."""
        with self.manager.store.transaction():
            session = ChatSession.get_or_none(ChatSession.id == session_id)
            messages = list(ChatMessage.select().where(ChatMessage.session == session_id))
            pictures = list(_pictures_of(session_id))
            ChatSession.delete().where(ChatSession.id == session_id).execute()
        if session is not None:
            self._deleted[session_id] = (session, *messages, *pictures)

    def undelete(self, session_id: str) -> None:
        if session_id not in self._deleted:
            raise OllmSandboxError(N_("The session can no longer be restored."))
        with self.manager.store.transaction():
            for row in self._deleted[session_id]:
                row.save(force_insert=True)
        del self._deleted[session_id]

    # --- messages ------------------------------------------------------------------------------

    def write(self, session_id: str, entry: stored.StoredMessage) -> None:
        """Store a message, and replace the one with its number, if any."""
        message = entry.message
        with self.manager.store.transaction() as connection:
            known = ChatSession.update(updated_at=message.at).where(ChatSession.id == session_id)
            if not known.execute():
                return  # it was deleted in the meantime
            row = (
                ChatMessage.insert(
                    session=session_id,
                    number=entry.number,
                    role=message.role.value,
                    text=message.text,
                    thinking=message.thinking,
                    model=message.model,
                    calls=stored.calls_to_json(message.calls),
                    call_id=message.call_id,
                    outcome=stored.record_to_json(entry.record),
                    extra=stored.extra_to_json(message),
                    state="partial" if message.partial else "done",
                    at=message.at,
                )
                .on_conflict_replace()
                .execute()
            )
            for picture in message.pictures:
                ChatPicture.insert(
                    message=row,
                    media_type=picture.media_type,
                    data=picture.data,
                    name=picture.name,
                ).execute()
            if message.pictures:
                connection.execute(_DROP_OLD_PICTURES, (session_id, _MOST_OF_PICTURES))

    def remove(self, session_id: str, number: int) -> None:
        with self.manager.store.transaction():
            ChatMessage.delete().where(
                (ChatMessage.session == session_id) & (ChatMessage.number == number)
            ).execute()

    def remove_from(self, session_id: str, at: float) -> None:
        """Remove the user's message of that time, and everything after it."""
        with self.manager.store.transaction():
            is_it = (ChatMessage.role == Role.USER.value) & (ChatMessage.at == at)
            found = ChatMessage.get_or_none((ChatMessage.session == session_id) & is_it)
            if found is not None:
                ChatMessage.delete().where(
                    (ChatMessage.session == session_id) & (ChatMessage.number >= found.number)
                ).execute()

    # --- runs ----------------------------------------------------------------------------------

    def run_of(self, session_id: str, call_id: str) -> str:
        """Return the id of a call's run, or "" if it changed nothing."""
        with self.manager.store.translated_errors():
            of_call = (Run.session_id == session_id) & (Run.call_id == call_id)
            row = Run.select().where(of_call).order_by(Run.started_at.desc()).first()
            return row.id if row else ""

    def changes(self, run_id: str) -> list[Recorded]:
        """Return what a run changed, or nothing if its record was removed."""
        with self.manager.store.translated_errors():
            run = Run.get_or_none(Run.id == run_id)
        return read_changes(self.manager, run) if run else []

    def session_runs(self, session_id: str) -> list[SessionRun]:
        """Return the runs of a session with their changes, the oldest first."""
        with self.manager.store.translated_errors():
            query = Run.select(Run, Project).join(Project).where(Run.session_id == session_id)
            rows = list(query.order_by(Run.started_at, Run.id))
        return [
            SessionRun(
                row.id, row.command, row.project.path, tuple(read_changes(self.manager, row))
            )
            for row in rows
        ]

    def said_before(self, runs: Iterable[Run]) -> dict[str, str]:
        """Return what the model said before each run, by the run's id: with the call, or earlier in
        the same turn. The user's own commands, and calls without a word, have nothing."""
        wanted = {(run.session_id, run.call_id): run.id for run in runs if run.call_id}
        found: dict[str, str] = {}
        with self.manager.store.translated_errors():
            query = ChatMessage.select(
                ChatMessage.session, ChatMessage.role, ChatMessage.text, ChatMessage.calls
            ).where(
                ChatMessage.session.in_({session for session, _call in wanted}),
                ChatMessage.role.in_((Role.USER.value, Role.ASSISTANT.value)),
            )
            rows = list(query.order_by(ChatMessage.session, ChatMessage.number))
        said = ""
        for row in rows:
            said = "" if row.role == Role.USER.value else row.text.strip() or said
            for call in stored.calls_from_json(row.calls) if said and row.calls != "[]" else ():
                if (row.session_id, call.id) in wanted:
                    found[wanted[row.session_id, call.id]] = said
        return found

    def is_left_by_a_run(self, root: str, path: str, signature: str) -> bool:
        """Return whether a run, of any session, left a file like this; without a signature, whether
        one removed it or a folder around it."""
        here = ChangeRow.root == root
        if signature:
            left = here & (ChangeRow.path == path) & (ChangeRow.after == signature)
        else:
            parts = path.split("/")
            around = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
            removed = ChangeRow.kind.in_((Kind.DELETED.value, Kind.REPLACED.value))
            is_applied = ChangeRow.state == State.APPLIED.value
            left = here & ChangeRow.path.in_(around) & removed & is_applied
        with self.manager.store.translated_errors():
            return bool(ChangeRow.select().where(left).exists())

    def told(self, session_id: str) -> str:
        """Return what the model was told about changes, as `keep_told` stored it."""
        with self.manager.store.translated_errors():
            row = ChatSession.get_or_none(ChatSession.id == session_id)
            return row.told if row else ""

    def keep_told(self, session_id: str, text: str) -> None:
        self._update(session_id, told=text)

    def add_spent(self, session_id: str, spent: stored.Spent) -> None:
        """Count the tokens of an answer."""
        with self.manager.store.transaction():
            session = ChatSession.get_or_none(ChatSession.id == session_id)
            if session is None:
                return  # it was deleted in the meantime
            total = _spent(session).plus(spent)
            self._update(
                session_id, prompt_tokens=total.prompt, reply_tokens=total.reply, cost=total.cost
            )

    # --- questions -----------------------------------------------------------------------------

    def write_question(self, request: PermissionRequest, at: float) -> None:
        with self.manager.store.transaction():
            Question.insert(**_question(request, at)).on_conflict_ignore().execute()

    def write_answer(self, verdict: Verdict) -> None:
        """Store an answer, and the question if a rule answered it before it was asked."""
        said = {
            "answer": verdict.answer.value,
            "source": verdict.source.value,
            "answered_at": verdict.at,
        }
        with self.manager.store.transaction():
            Question.insert(**_question(verdict.request, verdict.at)).on_conflict_ignore().execute()
            Question.update(**said).where(Question.id == verdict.request.id).execute()

    def questions(self, session_id: str) -> list[Question]:
        with self.manager.store.translated_errors():
            query = Question.select().where(Question.session_id == session_id)
            return list(query.order_by(Question.asked_at))

    def _update(self, session_id: str, **values: object) -> None:
        with self.manager.store.transaction():
            ChatSession.update(**values).where(ChatSession.id == session_id).execute()


def _no_session(session_id: str) -> OllmSandboxError:
    return OllmSandboxError(
        N_("There is no session {session}."),
        N_("List the sessions with: ollmsandbox sessions list"),
        session=session_id,
    )


def _has(field: object, word: str) -> object:
    """Match without regard to case; SQLite itself can do that only for ASCII."""
    spellings = {word} if word.isascii() else {word, word.lower(), word.upper(), word.capitalize()}
    found = None
    for spelling in sorted(spellings):
        one = fn.instr(fn.lower(field), fn.lower(spelling)) > 0
        found = one if found is None else found | one
    return found


def _line_with(words: Sequence[str], text: str) -> str:
    """Return the first of the lines that have the most of these words, from a little before the
    first of them."""
    lower = [word.lower() for word in words]
    line = max(text.splitlines(), key=lambda one: sum(word in one.lower() for word in lower))
    start = min((at for word in lower if (at := line.lower().find(word)) >= 0), default=0)
    cut = max(0, start - _BEFORE)
    return printable_line(f"{'…' if cut else ''}{line[cut : cut + _LONGEST_LINE].strip()}")


def _described() -> object:
    """Return the expression for the description of a call: the command, file or address."""
    has_record = fn.json_valid(ChatMessage.outcome) == 1
    described = fn.json_extract(ChatMessage.outcome, "$.description")
    return Case(None, [(has_record, described)], "")


def _spent(row: ChatSession) -> stored.Spent:
    return stored.Spent(row.prompt_tokens, row.reply_tokens, row.cost)


def _info(row: ChatSession) -> stored.SessionInfo:
    return stored.SessionInfo(
        id=row.id,
        title=row.title or title_from(row.draft),
        project=row.project.path if row.project is not None else "",
        model=row.model,
        connection=row.connection,
        created_at=row.created_at,
        updated_at=row.updated_at,
        spent=_spent(row),
    )


def _pictures_of(session_id: str) -> ModelSelect[ChatPicture]:
    return ChatPicture.select().join(ChatMessage).where(ChatMessage.session == session_id)


def _entry(row: ChatMessage, pictures: Sequence[Picture]) -> stored.StoredMessage:
    record = stored.record_from_json(row.outcome)
    message = Message(
        role=Role(row.role),
        text=row.text,
        thinking=row.thinking,
        calls=stored.calls_from_json(row.calls),
        call_id=row.call_id,
        model=row.model,
        at=row.at,
        partial=row.state != "done",
        was_denied=record is not None and record.was_denied,
        pictures=tuple(pictures),
    )
    return stored.StoredMessage(row.number, stored.with_extra(message, row.extra), record)


def _question(request: PermissionRequest, at: float) -> dict[str, object]:
    return {
        "id": request.id,
        "session_id": request.session_id,
        "call_id": request.call_id,
        "tool": request.tool,
        "project": request.project,
        "question": request.question,
        "subject": request.subject,
        "target": request.target_path,
        "one_time_only": request.one_time_only,
        "asked_at": at,
    }
