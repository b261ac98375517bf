# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that can run code outside the sandbox, by when they do, with the sources.

Each pattern is the name of a file (`.envrc`), or the end of a path (`.config/mise.toml`). With a
slash at its end it is a folder and everything in it. `stem.*` and `*.ending` stand for names.
Patterns are in lower case. Not listed, because they run nothing: .editorconfig, .nvmrc,
.python-version, .ruby-version, .node-version, .gitignore, .dockerignore, .prettierignore.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..change import Flag


class RiskyFiles(NamedTuple):
    patterns: str
    source: str


def _listed(text: str) -> tuple[RiskyFiles, ...]:
    """Read patterns that are followed by their source. Lines that begin with a # are headings."""
    entries = re.findall(r"([^#]+)# (\S+)", re.sub(r"(?m)^#.*", "", text))
    return tuple(RiskyFiles(*entry) for entry in entries)


OPENING = _listed("""
# Shells and environments that act when somebody changes to the folder.
.envrc .envrc.* .direnv/ .direnvrc .shadowenv.d/ # https://direnv.net/man/direnv.1.html
mise.toml .mise.toml mise.local.toml .mise.local.toml mise/config.toml .mise/ .config/mise.toml
.config/mise/ .mise-tasks/ mise-tasks/ .rtx.toml # https://mise.jdx.dev/configuration.html
.autoenv .autoenv.zsh .autoenv_leave.zsh # https://github.com/Tarrasch/zsh-autoenv
.env .env.leave # https://github.com/hyperupcall/autoenv
.env.zsh # https://github.com/ohmyzsh/ohmyzsh/tree/master/plugins/dotenv
.rvmrc # https://rvm.io/workflow/rvmrc
.bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile
.zlogin .zlogout .login .logout .cshrc .tcshrc .kshrc .mkshrc .xprofile .xinitrc .xsession
.xsessionrc .pam_environment config.fish .config/fish/ fish_variables config.nu env.nu .elvish/
.xonshrc # https://www.gnu.org/software/bash/manual/html_node/Bash-Startup-Files.html
# Editors.
.vscode/ *.code-workspace .vscodium/ .vscode-server/ .theia/
  # https://code.visualstudio.com/docs/editor/workspace-trust
.idea/ *.iml *.ipr *.iws .run/ .fleet/ # https://www.jetbrains.com/help/idea/project-security.html
.zed/ # https://zed.dev/docs/configuring-zed
.vimrc _vimrc .local.vimrc .vimrc.local .vimlocal .ideavimrc # https://github.com/embear/vim-localvimrc
.gvimrc .exrc _exrc .nvimrc .nvim.lua .lvimrc .vim/ .nvim/ .vimspector.json
.neoconf.json .nlsp-settings/ .lazy.lua .projections.json
  # https://neovim.io/doc/user/options.html#'exrc'
.dir-locals.el .dir-locals-2.el .emacs .emacs.d/
  # https://www.gnu.org/software/emacs/manual/html_node/emacs/Safe-File-Variables.html
*.sublime-project *.sublime-workspace *.sublime-build *.sublime-settings
  # https://www.sublimetext.com/docs/projects.html
.kateproject .kateproject.* # https://docs.kde.org/stable5/en/kate/kate/
.helix/ # https://docs.helix-editor.com/configuration.html
.nova/ # https://docs.nova.app/
.externaltoolbuilders/ .settings/ .project .classpath .cproject # https://help.eclipse.org/
nbproject/ # https://netbeans.apache.org/
.vs/ *.csproj *.vbproj *.fsproj *.vcxproj *.sln *.slnx *.suo directory.build.props
directory.build.targets directory.build.rsp nuget.config
  # https://learn.microsoft.com/visualstudio/ide/trust-settings
.qtcreator/ *.user # https://doc.qt.io/qtcreator/
project.godot export_presets.cfg # https://docs.godotengine.org/en/stable/tutorials/plugins/editor/
*.uproject *.uplugin # https://dev.epicgames.com/documentation/unreal-engine/
projectsettings/ packages/manifest.json # https://docs.unity3d.com/Manual/upm-manifestPrj.html
analysis_options.yaml .fvm/ .fvmrc # https://dart.dev/tools/analyzer-plugins
omnisharp.json # https://github.com/OmniSharp/omnisharp-roslyn/wiki/Configuration-Options
.devcontainer/ .devcontainer.json devcontainer.json
  # https://containers.dev/implementors/json_reference/
.gitpod.yml .gitpod/ .ona/ .replit replit.nix .idx/ devfile.yaml .devfile.yaml .codesandbox/
.stackblitzrc # https://www.gitpod.io/docs/configure/workspaces/tasks
# Agents: hooks, tools to start, and instructions.
.mcp.json mcp.json mcp.yaml .mcp/ # https://modelcontextprotocol.io/
.claude/ .claude.json claude.md claude.local.md .claude-plugin/
  # https://docs.claude.com/en/docs/claude-code/settings
.cursor/ .cursorrules .cursorignore # https://docs.cursor.com/context/rules
.codex/ agents.md agents.override.md .agents/ .agent/ # https://agents.md/
.gemini/ gemini.md .geminiignore # https://github.com/google-gemini/gemini-cli
.github/copilot-instructions.md .github/instructions/ .github/prompts/ .github/agents/
.github/chatmodes/ .github/hooks/ .github/skills/ .copilot/
  # https://docs.github.com/copilot/customizing-copilot
.aider.conf.yml .aider.conf.yaml .aider.model.settings.yml .aiderignore
  # https://aider.chat/docs/config/aider_conf.html
.continue/ .continuerc.json .continuerules # https://docs.continue.dev/
.windsurf/ .windsurfrules .codeium/ # https://docs.windsurf.com/
.clinerules .clinerules/ .cline/ .roo/ .roomodes .roorules .kilocode/ .kilocodemodes
  # https://docs.cline.bot/
.opencode/ opencode.json opencode.jsonc # https://opencode.ai/docs/config/
crush.json .crush.json .crush/ # https://github.com/charmbracelet/crush
.goosehints .goose/ # https://block.github.io/goose/
.kiro/ .amazonq/ # https://kiro.dev/docs/hooks/
.qwen/ qwen.md .iflow/ .codebuddy/ .trae/ .qoder/ .kimi/ .lingma/
  # https://github.com/QwenLM/qwen-code
.augment/ .augment-guidelines .junie/ .amp/ .factory/ .tabnine/ .cody/ .sourcegraph/ .openhands/
.openhands_instructions .devin/ .warp/ warp.md .rules .zencoder/ .rovodev/ .void/ .pearai/
.swe-agent/ .plandex/ .ollmsandbox/ # https://docs.all-hands.dev/usage/prompting/repository
# The desktop.
*.desktop .directory autorun.inf autorun.sh .autorun autorun
  # https://specifications.freedesktop.org/desktop-entry-spec/latest/
.ssh/ authorized_keys # https://man.openbsd.org/sshd#AUTHORIZED_KEYS_FILE_FORMAT
""")

TOOL = _listed("""
.git .gitattributes .gitmodules .gitconfig .githooks/ .husky/ .git-hooks/ .lefthook/
.lefthook-local/ .hgrc .hgsub .fossil-settings/ .overcommit.yml .pre-commit-config.yaml
.pre-commit-hooks.yaml lefthook.* .lefthook.* lefthook-local.* .lefthook-local.* .simple-git-hooks.*
.lintstagedrc .lintstagedrc.* lint-staged.config.* commitlint.config.* .commitlintrc.*
.rusty-hook.toml hk.pkl .fslckout _fossil_ _mtn/ .p4config .p4enviro .repo/ .gclient
.gclient_entries .arcconfig .arclint # https://git-scm.com/docs/gitattributes
.lfsconfig .gitlint .release-it.* .versionrc.* .cz.*
  # https://github.com/git-lfs/git-lfs/blob/main/docs/man/git-lfs-config.adoc
# Python.
*.pyc *.pyo # https://docs.python.org/3/reference/import.html#cached-bytecode-invalidation
.venv/bin/ venv/bin/ .virtualenv/bin/ virtualenv/bin/ .venv/scripts/ venv/scripts/
  # https://docs.python.org/3/library/venv.html
*.pth *.start sitecustomize.py usercustomize.py pyvenv.cfg
  # https://docs.python.org/3/library/site.html
.pythonstartup .pythonrc .pythonrc.py .pdbrc .pdbrc.py pdbrc .ipython/ ipython_config.py
jupyter_config.py jupyter_notebook_config.py jupyter_server_config.py .jupyter/ .ptpython/
  # https://docs.python.org/3/library/pdb.html
.pylintrc pylintrc .pylintrc.toml pylintrc.toml mypy.ini .mypy.ini .flake8 .bandit
.pyre_configuration pytype.cfg .style.yapf
  # https://pylint.readthedocs.io/en/stable/user_guide/configuration/all-options.html
pip.conf .pypirc uv.toml .condarc environment.yml poetry.toml pdm.toml .pdm.toml pixi.toml
  # https://pip.pypa.io/en/stable/topics/configuration/
# JavaScript.
.npmrc .yarnrc .yarnrc.yml .yarn/ .pnpmfile.cjs pnpmfile.js .pnpmfile.mjs pnpm-workspace.yaml
.pnp.cjs .pnp.loader.mjs bunfig.toml .bunfig.toml .noderc .nodemonrc nodemon.json .node_repl_history
deno.json deno.jsonc # https://yarnpkg.com/configuration/yarnrc#yarnPath
.eslintrc .eslintrc.* eslint.config.* .prettierrc .prettierrc.* prettier.config.* .stylelintrc
.stylelintrc.* stylelint.config.* .babelrc .babelrc.* babel.config.* .swcrc biome.json
.oxlintrc.json tslint.json .xo-config.* .markdownlint-cli2.* .textlintrc .textlintrc.*
svelte.config.* .solhint.json .graphqlrc.* graphql.config.* .htmlhintrc .remarkrc .remarkrc.* .pugrc
.postcssrc .postcssrc.* postcss.config.* tailwind.config.* uno.config.* windi.config.*
  # https://eslint.org/docs/latest/use/configure/configuration-files
.puppeteerrc.* .lighthouserc.* lighthouserc.* .umirc.* .eleventy.js eleventy.config.* cspell.json
cspell.config.* .cspell.json plopfile.* typedoc.json # https://cspell.org/configuration/
# Other languages.
.cargo/ rust-toolchain rust-toolchain.toml .clippy.toml clippy.toml rustfmt.toml
  # https://doc.rust-lang.org/cargo/reference/config.html
.rprofile .renviron .rprofile.site renv/ packrat/
  # https://stat.ethz.ch/R-manual/R-devel/library/base/html/Startup.html
.julia/ startup.jl .octaverc startup.m finish.m .matlab/
  # https://docs.octave.org/latest/Startup-Files.html
.irbrc .pryrc .rspec .rubocop.yml .rubocop_todo.yml .bundle/ .gemrc .erb_lint.yml .solargraph.yml
.reek.yml .simplecov .yardopts .byebugrc .rdbgrc .rdbgrc.rb
  # https://docs.rubocop.org/rubocop/configuration.html
.php-cs-fixer.php .php-cs-fixer.dist.php .php_cs rector.php phpstan.neon phpstan.neon.dist psalm.xml
.user.ini php.ini .htaccess .psysh.php
  # https://www.php.net/manual/en/configuration.file.per-user.php
.perlcriticrc .perltidyrc .proverc .perldb .ackrc .replyrc # https://beyondgrep.com/documentation/
.ghci .ghc.environment.* hie.yaml cabal.project.local .stack/
  # https://downloads.haskell.org/ghc/latest/docs/users_guide/ghci.html
.iex.exs .formatter.exs .credo.exs .erlang # https://hexdocs.pm/iex/IEx.html
.ocamlinit .merlin .lein/ .clj-kondo/ .lsp/ .nrepl.edn .nrepl/ .joker .sbtopts .jvmopts .sbtrc
.scalafmt.conf .scalafix.conf .scala-build/ .metals/ .bloop/
  # https://v2.ocaml.org/manual/toplevel.html
.luarc.json .luarc.jsonc .luacheckrc .luacov .busted .lua-format .luarocks/
  # https://luals.github.io/wiki/configuration/
.swiftlint.yml .swift-version .swiftpm/ # https://github.com/realm/SwiftLint
.mvn/ mvnw mvnw.cmd # https://maven.apache.org/configure.html
gradlew gradlew.bat gradle/wrapper/ gradle.properties init.gradle init.gradle.kts .gradle/
  # https://docs.gradle.org/current/userguide/gradle_wrapper.html
.bazelrc .bazelrc.* bazel.bazelrc user.bazelrc .bazeliskrc .bazelversion tools/bazel .buckconfig
.buckconfig.local .buckconfig.d/ .pants.rc pants.toml .plzconfig .plzconfig.local
  # https://bazel.build/run/bazelrc
.tool-versions .asdfrc .prototools .sdkmanrc .sdkmanrc.* .jabbarc .nodenv-vars .rbenv-vars .volta
  # https://asdf-vm.com/manage/configuration.html
shell.nix default.nix flake.nix devenv.nix devenv.yaml devbox.json .devbox/ manifest.scm guix.scm
channels.scm .flox/ flox.nix .nixpkgs/ # https://nix.dev/manual/nix/latest/command-ref/nix-shell
.gdbinit .gdbinit.* gdbinit .gdbearlyinit .lldbinit .radare2rc .rizinrc .pwnrc .gef.rc .valgrindrc
.ltracerc .strace .drgn
  # https://sourceware.org/gdb/current/onlinedocs/gdb.html/Init-File-in-the-Current-Directory.html
.clang-tidy .clangd compile_flags.txt compile_commands.json .ccls .ycm_extra_conf.py .bsp/
buildserver.json .sourcekit-lsp/ rust-analyzer.toml .rust-analyzer.toml .ropeproject/
.lite_project.lua # https://clangd.llvm.org/config
.inputrc .screenrc .tmux.conf .tmuxinator.yml .tmuxinator.yaml .tmuxp.yaml .tmuxp.json .zellij.kdl
.byobu/ .wezterm.lua # https://man.openbsd.org/tmux.1
.curlrc .wgetrc .netrc .psqlrc .sqliterc .my.cnf .mongorc.js .mongoshrc.js .duckdbrc .mailrc .muttrc
.lesskey .lessfilter .nanorc .dircolors .digrc .toprc # https://www.sqlite.org/cli.html
.terraformrc terraform.rc .terraform/ .terraformversion .opentofu/ *.tfbackend ansible.cfg .ansible/
.helmignore .kube/ .docker/ .aws/ .pulumi/ .tflint.hcl .terragrunt-cache/ .krew/
  # https://docs.ansible.com/ansible/latest/reference_appendices/config.html
latexmkrc .latexmkrc texmf.cnf .texlive/ texmf/
  # https://mirrors.ctan.org/support/latexmk/latexmk.pdf
.sops.yaml .age-plugin .gnupg/ gpg.conf # https://github.com/getsops/sops
""")

BUILD = _listed("""
makefile gnumakefile bsdmakefile makefile.am makefile.in makefile.pl *.mk *.mak kbuild configure
configure.ac configure.in autogen.sh # https://www.gnu.org/software/make/manual/
cmakelists.txt *.cmake cmakepresets.json cmakeuserpresets.json ctesttestfile.cmake
  # https://cmake.org/cmake/help/latest/
meson.build meson_options.txt meson.options *.ninja *.gyp *.gypi *.pri *.qbs *.pro premake5.lua
xmake.lua wscript sconstruct sconscript tundra.lua tupfile tup.config jamfile jamroot *.bp *.gn
build.zig build.zig.zon # https://mesonbuild.com/
build workspace build.bazel workspace.bazel module.bazel *.bzl
  # https://bazel.build/concepts/build-files
package.json npm-shrinkwrap.json lerna.json nx.json turbo.json rush.json bower.json jsr.json
.size-limit.* wrangler.toml # https://docs.npmjs.com/cli/using-npm/scripts
vite.config.* vitest.config.* vitest.workspace.* webpack.config.* rollup.config.* rspack.config.*
rsbuild.config.* esbuild.config.* esbuild.js tsup.config.* tsdown.config.* next.config.*
nuxt.config.* astro.config.* remix.config.* gatsby-config.* gatsby-node.* vue.config.* angular.json
quasar.config.* metro.config.* gulpfile.* gruntfile.* jakefile jakefile.* jest.config.* jest.setup.*
.mocharc.* karma.conf.* cypress.config.* .nycrc .nycrc.* playwright.config.* wdio.conf.*
ava.config.* .taprc protractor.conf.* .c8rc.json .storybook/ snowpack.config.* parcel.config.*
.parcelrc brunch-config.* ember-cli-build.js testem.js electron-builder.* forge.config.*
app.config.* drizzle.config.* knexfile.* ormconfig.* sequelize.config.* codegen.* release.config.*
.releaserc .releaserc.* semantic-release.* .changeset/ rolldown.config.* # https://vite.dev/config/
setup.py setup.cfg pyproject.toml hatch_build.py build.py noxfile.py tox.ini conftest.py pytest.ini
.pytest.ini tasks.py fabfile.py dodo.py sconstruct.py manage.py .coveragerc requirements.txt
constraints.txt pipfile conanfile.py conanfile.txt vcpkg.json portfile.cmake setup_commands.py
hatch.toml docs/conf.py doc/conf.py docs/source/conf.py doc/source/conf.py
  # https://packaging.python.org/en/latest/specifications/pyproject-toml/
build.rs cargo.toml xtask/ makefile.toml cargo-make.toml dist-workspace.toml
  # https://doc.rust-lang.org/cargo/reference/build-scripts.html
gemfile gems.rb rakefile *.rake *.gemspec guardfile capfile thorfile dangerfile fastfile podfile
brewfile steepfile appraisals berksfile # https://bundler.io/man/gemfile.5.html
composer.json phpunit.xml phpunit.xml.dist build.xml phinx.php robofile.php deploy.php box.json
  # https://getcomposer.org/doc/articles/scripts.md
build.gradle build.gradle.kts settings.gradle settings.gradle.kts *.gradle *.kts buildsrc/ pom.xml
build.sbt build.sc build.mill project/build.properties project/plugins.sbt ivy.xml build.xml
project.clj deps.edn bb.edn build.boot shadow-cljs.edn build.clj # https://docs.gradle.org/
package.swift project.swift *.podspec *.xcconfig *.pbxproj cartfile tuist/
  # https://www.swift.org/documentation/package-manager/
mix.exs rebar.config rebar.config.script erlang.mk dune dune-project dune-workspace *.opam *.cabal
cabal.project stack.yaml setup.hs setup.lhs package.yaml shake.hs *.rockspec dub.json dub.sdl
*.nimble nim.cfg config.nims *.nims shard.yml gleam.toml project.toml elm.json spago.dhall v.mod
build.v # https://hexdocs.pm/mix/Mix.html
build.pl dist.ini makefile.pl cpanfile # https://metacpan.org/pod/Module::Build
go.mod go.work magefile.go .goreleaser.yml .goreleaser.yaml .golangci.yml .golangci.yaml .air.toml
.mockery.yaml gqlgen.yml # https://go.dev/ref/mod
*.props *.targets *.cake global.json cakefile paket.dependencies
  # https://learn.microsoft.com/visualstudio/msbuild/
tsconfig.json tsconfig.app.json tsconfig.base.json tsconfig.build.json tsconfig.lib.json
tsconfig.node.json tsconfig.spec.json tsconfig.eslint.json jsconfig.json .tern-project
  # https://github.com/microsoft/TypeScript/wiki/Writing-a-Language-Service-Plugin
doxyfile mkdocs.yml book.toml _quarto.yml _plugins/ docusaurus.config.* craco.config.* nest-cli.json
config-overrides.js tauri.conf.json capacitor.config.* ionic.config.json
  # https://rust-lang.github.io/mdBook/format/configuration/preprocessors.html
dvc.yaml snakefile nextflow.config _targets.r buf.gen.yaml sqlc.yaml sqlc.yml .sqlfluff trunk.toml
cross.toml .config/nextest.toml .config/dotnet-tools.json build.fsx .fake/ pubspec.yaml melos.yaml
  # https://nexte.st/docs/configuration/setup-scripts/
justfile .justfile *.just taskfile.yml taskfile.yaml taskfile.dist.yml taskfile.dist.yaml tiltfile
earthfile dagger.json procfile procfile.* overmind.env .overmind.env .foreman process-compose.yml
process-compose.yaml hivemind .envfile skaffold.yaml garden.yml devspace.yaml okteto.yml werf.yaml
  # https://just.systems/man/en/
dockerfile dockerfile.* *.dockerfile containerfile containerfile.* compose.yml compose.yaml
docker-compose.yml docker-compose.yaml docker-compose.* docker-bake.hcl docker-bake.json vagrantfile
packer.json cloud-init.* *.tf *.tofu *.hcl serverless.yml serverless.ts samconfig.toml cdk.json
pulumi.yaml ansible/ playbook.yml helmfile.yaml chart.yaml kustomization.yaml
  # https://docs.docker.com/reference/dockerfile/
.github/workflows/ .github/actions/ .github/dependabot.yml .gitea/ .forgejo/ .circleci/ .buildkite/
.woodpecker/ .woodpecker.yml .woodpecker.yaml .gitlab-ci.yml .gitlab/ .travis.yml .drone.yml
.drone.star .appveyor.yml appveyor.yml jenkinsfile azure-pipelines.yml .azure-pipelines/
.azuredevops/ bitbucket-pipelines.yml cloudbuild.yaml buildspec.yml .cirrus.yml .cirrus.star
.semaphore/ .teamcity/ .sourcehut/ .build.yml .builds/ bitrise.yml codemagic.yaml .codefresh/
.tekton/ .zuul.yaml zuul.d/ .harness/ .screwdriver.yaml netlify.toml vercel.json render.yaml
fly.toml app.json .platform.app.yaml .readthedocs.yaml .readthedocs.yml action.yml action.yaml
renovate.json renovate.json5 .renovaterc .mergify.yml
  # https://docs.github.com/actions/reference/workflow-syntax-for-github-actions
pkgbuild *.spec *.ebuild apkbuild debian/rules debian/ snapcraft.yaml flatpak/ *.nix *.install *.wxs
appimagebuilder.yml portfile # https://www.debian.org/doc/debian-policy/ch-source.html
""")

KINDS = ((Flag.OPENING, OPENING), (Flag.TOOL, TOOL), (Flag.BUILD, BUILD))
