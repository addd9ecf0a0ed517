"""A component of the engine for its simulator, which has one ``local`` folder for all parties."""

import shutil
from pathlib import Path

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent


class PartyFiles(FLComponent):
    """Copies a party's own files into its workspace before a run, as a kit has them."""

    def __init__(self, folder):
        super().__init__()
        self._folder = Path(folder)

    def handle_event(self, event_type, fl_ctx):
        if event_type == EventType.START_RUN:
            local = Path(fl_ctx.get_engine().get_workspace().get_root_dir()) / "local"
            shutil.copytree(self._folder / fl_ctx.get_identity_name(), local, dirs_exist_ok=True)
