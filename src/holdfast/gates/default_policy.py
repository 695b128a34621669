"""The built-in policy, in the very grammar that policy files use (`docs/reference/policy.md`).

Ordinary writes and modes are low; deleting is medium; what can make a program run, open a door or speak for somebody
is high. A list of names cannot be complete: a harmless name that an existing start-up file reads is code too.
"""

from __future__ import annotations

from collections.abc import Mapping

_GIT_HOOKS = """applypatch-msg commit-msg fsmonitor-watchman post-applypatch post-checkout post-commit
post-index-change post-merge post-receive post-rewrite post-update pre-applypatch pre-auto-gc pre-commit
pre-merge-commit pre-push pre-rebase pre-receive prepare-commit-msg proc-receive push-to-checkout
reference-transaction sendemail-validate update""".split()

_SHELL = """.bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin
.zlogout .kshrc .mkshrc .cshrc .tcshrc .login .logout .xinitrc .xprofile .xsession .xsessionrc .inputrc
**/fish/config.fish **/fish/conf.d/** **/fish/functions/** **/nushell/** **/etc/profile etc/profile profile.d
bash.bashrc **/etc/bashrc **/etc/environment environment.d .pam_environment **/etc/zsh/** **/powershell/*profile.ps1
.tmux.conf .screenrc .vimrc .gvimrc .exrc .nvimrc .emacs .emacs.d init.el **/nvim/init.* **/nvim/plugin/** .gdbinit
.lldbinit .psqlrc .sqliterc .irbrc .pryrc .Rprofile .perltidyrc .direnvrc .wgetrc .curlrc .npmrc .yarnrc .yarnrc.yml
.pnpmfile.cjs .pypirc .netrc .pip **/pip.conf .condarc .gemrc .bundle **/.cargo/config **/.cargo/config.toml
**/autostart/** *.desktop""".split()

_SYSTEM = """crontab cron.d cron.daily cron.hourly cron.weekly cron.monthly anacrontab **/spool/cron/** **/at/jobs/**
**/systemd/** *.service *.timer *.socket *.path *.mount *.automount *.slice *.target.wants init.d rc.d rc.local
inittab **/etc/rc* **/upstart/** **/launchd/** LaunchAgents LaunchDaemons **/runit/** **/s6/** **/supervisor/**
**/etc/ld.so.preload ld.so.preload ld.so.conf ld.so.conf.d **/udev/rules.d/** **/modprobe.d/** **/modules-load.d/**
**/sysctl.d/** sysctl.conf **/dbus-1/** **/polkit-1/** **/apt/apt.conf.d/** **/apt/sources.list
**/apt/sources.list.d/** **/yum.repos.d/** **/dpkg/info/** **/pam.d/** **/security/limits.conf **/logrotate.d/**
**/update-motd.d/** **/network/if-up.d/** **/NetworkManager/dispatcher.d/** **/binfmt.d/** **/tmpfiles.d/**
**/sysusers.d/** **/X11/Xsession.d/** **/etc/hosts **/etc/resolv.conf **/etc/nsswitch.conf **/etc/exports **/etc/fstab
**/etc/inetd.conf **/xinetd.d/** **/boot/** **/grub.d/** **/kernel/install.d/**""".split()

_KEYS = """.ssh authorized_keys authorized_keys2 known_hosts id_rsa id_dsa id_ecdsa id_ed25519 *.pem *.key *.p12 *.pfx
*.jks *.keystore *.kdbx *.gpg *.asc *.ppk .gnupg .password-store .aws .azure .kube .config/gcloud **/gcloud/** .docker
.dockercfg .vault-token .htpasswd sshd_config sshd_config.d ssh_config ssh_config.d **/etc/ssh/** sudoers sudoers.d
**/etc/passwd **/etc/shadow **/etc/group **/etc/gshadow **/etc/subuid **/etc/subgid shadow- passwd- **/ssl/private/**
**/pki/** doas.conf .rhosts .shosts hosts.equiv .k5login krb5.keytab *.keytab .env .env.local .env.production
.env.prod .env.staging .env.development .env.dev .env.test .envrc .secrets credentials.json
service-account*.json""".split()

_CI = """.github/workflows .github/actions **/.github/workflows/** **/.github/actions/** **/.github/dependabot.yml
**/.github/CODEOWNERS CODEOWNERS .gitlab-ci.yml .gitlab-ci.yaml .gitlab **/.gitlab/ci/** Jenkinsfile Jenkinsfile.*
.circleci .travis.yml .drone.yml .drone.star .woodpecker .woodpecker.yml .buildkite .semaphore .appveyor.yml
appveyor.yml azure-pipelines.yml azure-pipelines.yaml .azure-pipelines bitbucket-pipelines.yml .teamcity .cirrus.yml
.cirrus.star cloudbuild.yaml cloudbuild.yml buildspec.yml .tekton .forgejo .gitea .builds .build.yml wercker.yml
codeship-steps.yml .zuul.yaml .zuul.d zuul.d .gocd.yaml earthly.yml renovate.json .renovaterc .goreleaser.yml
.goreleaser.yaml""".split()

_AGENTS = """.mcp.json mcp.json .claude .claude.json CLAUDE.md CLAUDE.local.md AGENTS.md AGENTS.override.md AGENT.md
.agents .codex .aider* .aiderignore GEMINI.md .gemini .opencode opencode.json opencode.jsonc .cursor .cursorrules
.cursorignore .windsurf .windsurfrules .clinerules .cline .roo .roomodes .roorules .kilocode .continue
.continuerc.json .copilot **/.github/copilot-instructions.md **/.github/instructions/** **/.github/prompts/**
**/.github/agents/** .goose .goosehints .amazonq .kiro .junie .augment .augment-guidelines .devin .openhands
.openhands_instructions .plandex .trae .qwen QWEN.md .crush crush.json .amp SKILL.md .rules""".split()

_EDITORS = """**/.vscode/tasks.json **/.vscode/settings.json **/.vscode/launch.json **/.vscode/extensions.json
**/.vscode/mcp.json *.code-workspace .idea .fleet .zed .nova .devcontainer devcontainer.json .dir-locals.el
.dir-locals-2.el .lvimrc .localvimrc .exrc .nvim.lua .editorconfig-checker.json .gitpod.yml .replit .idx .project.el
.sublime-project *.sublime-project""".split()

_LOADED = """*.pth sitecustomize.py usercustomize.py **/site-packages/** **/dist-packages/** .python-startup .pythonrc
.pythonrc.py pyvenv.cfg **/bin/activate* .node_repl_history **/node_modules/** .pnp.cjs .pnp.loader.mjs""".split()

_BUILD = """conftest.py pytest.ini tox.ini noxfile.py setup.py setup.cfg pyproject.toml manage.py tasks.py dodo.py
fabfile.py wscript SConstruct SConscript package.json bower.json deno.json deno.jsonc bunfig.toml Gruntfile.js
Gulpfile.js gulpfile.* webpack.config.* vite.config.* vitest.config.* jest.config.* rollup.config.* babel.config.*
.babelrc .babelrc.* .eslintrc .eslintrc.* eslint.config.* .prettierrc.js prettier.config.* karma.conf.js
playwright.config.* Makefile makefile GNUmakefile *.mk CMakeLists.txt *.cmake meson.build configure configure.ac
BUILD.bazel WORKSPACE.bazel MODULE.bazel *.bzl .bazelrc justfile .justfile Taskfile.yml Taskfile.yaml mise.toml
.mise.toml
.tool-versions Rakefile Gemfile *.gemspec build.rs Cargo.toml rust-toolchain.toml build.gradle build.gradle.kts
settings.gradle settings.gradle.kts gradle.properties **/gradle/wrapper/** gradlew mvnw pom.xml **/.mvn/** build.xml
build.sbt project.clj mix.exs rebar.config composer.json Package.swift Podfile *.csproj *.fsproj *.vbproj *.sln
Directory.Build.* nuget.config global.json go.mod go.work requirements*.txt constraints*.txt Pipfile environment.yml
flake.nix default.nix shell.nix Dockerfile Dockerfile.* *.dockerfile Containerfile docker-compose*.yml
docker-compose*.yaml compose.yml compose.yaml Vagrantfile Procfile Tiltfile skaffold.yaml Chart.yaml
kustomization.yaml *.tf *.tfvars playbook*.yml ansible.cfg""".split()

_POLICY = """holdfast.toml **/holdfast/config.toml **/holdfast/policies/** **/etc/holdfast/** ledger.key signing.key
**/holdfast/*.key""".split()

_GIT = [
    *"""HEAD .gitconfig **/git/config .gitmodules .gitattributes **/info/attributes **/git/attributes *.git
    packed-refs .husky .lefthook lefthook.yml lefthook.yaml lefthook-local.yml .pre-commit-config.yaml
    .pre-commit-hooks.yaml .overcommit.yml .githooks git-hooks .git-hooks .lintstagedrc .lintstagedrc.*
    lint-staged.config.* .hg .hgrc .svn .bzr .jj .sl""".split(),
    *[f"**/hooks/{hook}" for hook in _GIT_HOOKS],
]


def _rule(
    name: str, paths: list[str], risk: str, why: str, match: list[str], not_match: list[str]
) -> dict[str, object]:
    return {"name": name, "paths": paths, "risk": risk, "why": why, "match": match, "not_match": not_match}


BUILT_IN: Mapping[str, object] = {
    "low_risk": "allow",
    "without_verification": "ask",
    "without_health": "ask",
    "secrets": "ask",
    "people_from": "high",
    "people": 2,
    "strict_base": False,
    "approval_lifetime": "24h",
    "limits": {
        "files": 20_000,
        "lines": 2_000_000,
        "bytes": "2GB",
        "time": "2h",
        "deletions": 100,
        "deletions_percent": 50,
        "deletions_few": 20,
    },
    "rules": [
        {
            "name": "Forbids Holdfast's and git's own state",
            "paths": [".holdfast", ".git"],
            "risk": "critical",
            "verdict": "deny",
            "why": "what Holdfast knows, and the repository's own records, are changed by nobody's plan",
            "match": [
                ".holdfast/ledger.jsonl",
                ".git/config",
                "sub/.GIT/hooks/pre-commit",
                ".holdfaSt",
                ".g\u200bit/x",
            ],
            "not_match": [".github/a", "git/x", "holdfast/x"],
        },
        _rule(
            "Reviews policy and keys of Holdfast",
            _POLICY,
            "high",
            "it decides what the next change may do",
            ["holdfast.toml", "HOLDFAST.TOML", "sub/holdfast.toml", ".config/holdfast/config.toml", "etc/holdfast/x"],
            ["holdfast.toml.md", "src/holdfast/settings.py"],
        ),
        _rule(
            "Reviews keys and credentials",
            _KEYS,
            "high",
            "it opens a door or holds what opens one",
            [".ssh/config", "home/a/.ssh/authorized_keys", ".env", "app/.env.production", ".envrc", "etc/sudoers.d/x"],
            ["env", "src/env.py", "keys.md", "ssh/readme"],
        ),
        _rule(
            "Reviews start-up files of shells and tools",
            _SHELL,
            "high",
            "it runs, unasked, when somebody opens a shell or a tool",
            [".bashrc", "home/x/.ZSHRC", "etc/profile.d/x.sh", ".npmrc", "a/.config/fish/conf.d/x.fish"],
            ["bashrc.md", "docs/profile.md", "src/login.py"],
        ),
        _rule(
            "Reviews start-up files of the system",
            _SYSTEM,
            "high",
            "the system reads or runs it by itself, often as root",
            ["etc/cron.d/x", "crontab", "lib/systemd/system/a.conf", "a.service", "etc/ld.so.preload", "etc/rc.local"],
            ["docs/systemd.md", "cron.md", "src/service.py"],
        ),
        _rule(
            "Reviews files that interpreters load by themselves",
            _LOADED,
            "high",
            "it runs inside programs that do not mention it",
            ["x.pth", "lib/sitecustomize.py", "venv/lib/python3.11/site-packages/a.py", "node_modules/a/index.js"],
            ["path.py", "pth/readme.md"],
        ),
        _rule(
            "Reviews continuous integration",
            _CI,
            "high",
            "it runs elsewhere, with the project's secrets",
            [".github/workflows/ci.yml", "sub/.GITHUB/Workflows/x.yml", ".gitlab-ci.yml", "Jenkinsfile", ".circleci/a"],
            [".github/ISSUE_TEMPLATE/bug.md", "docs/ci.md"],
        ),
        _rule(
            "Reviews settings and instructions of agents",
            _AGENTS,
            "high",
            "it tells the next agent what to do, or grants it trust",
            [
                ".mcp.json",
                ".claude/settings.json",
                "sub/CLAUDE.md",
                "agents.md",
                ".codex/config.toml",
                ".aider.conf.yml",
            ],
            ["docs/agents.rst", "src/claude.py"],
        ),
        _rule(
            "Reviews settings of editors that run programs",
            _EDITORS,
            "high",
            "opening the folder is enough to run it",
            [".vscode/tasks.json", "sub/.VSCode/Tasks.json", ".idea/workspace.xml", ".devcontainer/devcontainer.json"],
            ["vscode/readme.md", "tasks.json"],
        ),
        _rule(
            "Reviews hooks, configuration and embedded repositories of version control",
            _GIT,
            "high",
            "version control runs programs it names, or hides what is there",
            ["a/HEAD", "x.git/config", "tools/hooks/pre-commit", ".gitattributes", ".husky/pre-push", ".gitmodules"],
            ["src/hooks/useState.ts", "head.md", "src/header.py"],
        ),
        _rule(
            "Reviews build files and test configuration",
            _BUILD,
            "medium",
            "it runs when somebody builds or tests",
            ["package.json", "web/package.json", "Makefile", "tests/conftest.py", "Dockerfile", "requirements-dev.txt"],
            ["package.md", "src/make.py", "src/configured.py"],
        ),
        {
            "name": "Reviews deletions",
            "paths": ["**"],
            "operations": ["delete"],
            "risk": "medium",
            "why": "something goes away",
            "match": ["a", {"path": "a/b", "operation": "delete"}],
            "not_match": [{"path": "a", "operation": "edit"}, {"path": "a", "operation": "create"}],
        },
    ],
}
