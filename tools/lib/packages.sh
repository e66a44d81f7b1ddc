# Debian packages. Sourced after common.sh.
#
# Installed through lists of our own (the machine's sources plus backports) in the cache folder: the machine's own apt
# configuration is not changed. The mirror is the one that the machine already uses.

build_packages=(build-essential cmake ninja-build ccache git ca-certificates python3 python3-venv
  libfmt-dev libspdlog-dev libpcre2-dev libutf8proc-dev libxxhash-dev libcli11-dev libssl-dev zlib1g-dev)
# Newer than Debian 12 has: from backports there, from the main archive on later releases.
backports_packages=(libboost1.83-dev libboost-json1.83-dev catch2)
# From there too, where they are asked for; libdrm's headers fit the libdrm that came with Mesa.
backports_for_some=(mesa-vulkan-drivers libdrm-dev)
# A Vulkan device without a GPU: Mesa's lavapipe.
lavapipe_packages=(libvulkan1 mesa-vulkan-drivers)

package_version() { dpkg-query -W -f '${db:Status-Abbrev}${Version}' "$1" 2>/dev/null | sed -n 's/^ii *//p' || true; }

# Names of those arguments that are not installed; mesa-vulkan-drivers counts only from Mesa 24 on (lavapipe of
# Debian 12's own Mesa 22 lacks what the kernels need).
missing_packages() {
  local name version
  for name in "$@"; do
    version=$(package_version "$name")
    if [[ -z $version ]] || { [[ $name == mesa-vulkan-drivers ]] && dpkg --compare-versions "$version" lt 24; }; then
      echo "$name"
    fi
  done
}

codename() { (. /etc/os-release && echo "${VERSION_CODENAME:-}"); }

# The archive that the machine reads its release from, and the key that signs it.
debian_mirror() {
  apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
    awk -v release="$(codename)" '$2 == release {print $1; exit}'
}
debian_keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# install_packages <name>...: installs what is missing; nothing to do costs nothing.
install_packages() {
  local missing
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]})) || return 0
  say "installing ${#missing[@]} packages: ${missing[*]}"
  local release options=() dir=$cache_dir/apt/system
  release=$(codename)
  if [[ $release == bookworm ]]; then
    local mirror
    mirror=$(debian_mirror)
    [[ -n $mirror ]] || die "no Debian mirror: apt's sources: expected one for $release, found none"
    mkdir -p "$dir/parts" "$dir/lists/partial"
    find "$dir/parts" -type f -delete
    cp -L /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources "$dir/parts/" 2>/dev/null || true
    echo "deb [signed-by=$debian_keyring] $mirror bookworm-backports main" >"$dir/parts/llmrt-backports.list"
    options=(-o "Dir::Etc::SourceParts=$dir/parts" -o "Dir::State::Lists=$dir/lists")
  fi
  export DEBIAN_FRONTEND=noninteractive
  options+=(-o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -o APT::Sandbox::User=root)
  as_root apt-get -qq "${options[@]}" update || warn "apt-get update: some lists could not be read"
  local from_main=() from_backports=() name
  for name in "${missing[@]}"; do
    case " ${backports_packages[*]} ${backports_for_some[*]} " in
      *" $name "*) from_backports+=("$name") ;;
      *) from_main+=("$name") ;;
    esac
  done
  local install=(as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y "${options[@]}" --no-install-recommends)
  if ((${#from_main[@]})); then
    "${install[@]}" install "${from_main[@]}" >/dev/null || die "apt-get could not install: ${from_main[*]}"
  fi
  if ((${#from_backports[@]})); then
    local target=()
    [[ $release == bookworm ]] && target=(-t bookworm-backports)
    "${install[@]}" "${target[@]}" install "${from_backports[@]}" >/dev/null ||
      die "apt-get could not install: ${from_backports[*]}"
  fi
}

# use_suite <suite> [deb-src]: points apt, through APT_CONFIG, at another suite of the same mirror (or at its sources),
# with folders and a (empty) package state of its own. Nothing is installed; packages are only downloaded. Signatures are
# checked, ages are not: a mirror that lags behind will do. Fails when the suite is not served.
use_suite() {
  local suite=$1 kind=${2:-deb} dir=$cache_dir/apt/$1${2:+-source} mirror
  mirror=$(debian_mirror)
  [[ -n $mirror && -f $debian_keyring ]] || return 1
  mkdir -p "$dir/lists/partial" "$dir/archives/partial"
  : >"$dir/status"
  echo "$kind [signed-by=$debian_keyring] $mirror $suite main" >"$dir/sources.list"
  cat >"$dir/apt.conf" <<CONF
Dir::Etc::SourceList "$dir/sources.list";
Dir::Etc::SourceParts "-";
Dir::Etc::Preferences "-";
Dir::Etc::PreferencesParts "-";
Dir::State::Lists "$dir/lists";
Dir::State::Status "$dir/status";
Dir::Cache "$dir";
Dir::Cache::Archives "$dir/archives";
Debug::NoLocking "true";
APT::Sandbox::User "root";
APT::Install-Recommends "false";
Acquire::Languages "none";
Acquire::Check-Valid-Until "false";
Acquire::Retries "2";
CONF
  export APT_CONFIG=$dir/apt.conf
  apt-get -qq update >/dev/null 2>&1 && [[ $kind == deb-src || -n $(apt-cache policy libc6 2>/dev/null) ]]
}

# unpack_debs <prefix> <deb>...: as if installed under the prefix.
unpack_debs() {
  local prefix=$1 deb
  shift
  mkdir -p "$prefix"
  for deb in "$@"; do dpkg-deb -x "$deb" "$prefix"; done
}

# Sets promtool: the PATH's, or Prometheus' of this release (19 MB), of which it alone is unpacked; fails when there is
# none to be had.
find_promtool() {
  promtool=$(command -v promtool || true)
  [[ -z $promtool ]] || return 0
  local dir=$cache_dir/promtool
  promtool=$dir/promtool
  [[ -x $promtool ]] && return 0
  say "downloading promtool (Debian's prometheus)"
  mkdir -p "$dir"
  (
    cd "$dir" && rm -f prometheus_*.deb && apt-get -qq -o APT::Sandbox::User=root download prometheus >/dev/null &&
      dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x --strip-components=3 ./usr/bin/promtool && rm prometheus_*.deb
  ) && [[ -x $promtool ]]
}
